// What a person can do with a GPU here: ask, keep, return, run cells on it.

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { type IWish, Problem } from './api';
import type { ILeases } from './leases';
import type { INotebooks, NotebookLink } from './notebooks';
import type { Options } from './options';
import type { ILease } from './wire';
import { Why } from './why';

/** Milliseconds in which a kernel that runs no cell answers. */
const ANSWERS_WITHIN = 1000;

export class Actions {
  constructor(
    readonly leases: ILeases,
    readonly options: Options,
    readonly trans: TranslationBundle,
    private readonly notebooks: INotebooks | null
  ) {}

  get panel(): NotebookPanel | null {
    return this.notebooks?.current ?? null;
  }

  link(panel: NotebookPanel | null = this.panel): NotebookLink | null {
    return panel === null ? null : (this.notebooks?.of(panel) ?? null);
  }

  /** The lease of a notebook, else of this server. */
  lease(panel: NotebookPanel | null = this.panel): ILease | null {
    const link = this.link(panel);
    return this.leases.of(link?.kernel?.id ?? null, link?.attached ?? null);
  }

  async request(wish: IWish = {}, panel = this.panel): Promise<void> {
    const kernel = this.link(panel)?.kernel?.id;
    const hours = this.options.hours;
    await this.attempt(() =>
      this.leases.api.ask({
        ...wish,
        ...(hours ? { seconds: hours * 3600 } : {}),
        ...(kernel ? { kernel_id: kernel } : {})
      })
    );
  }

  async keep(lease = this.lease()): Promise<void> {
    if (lease !== null) {
      await this.attempt(() => this.leases.api.keep(lease.id));
    }
  }

  async upgrade(lease = this.lease()): Promise<void> {
    if (lease !== null) {
      await this.attempt(() => this.leases.api.upgrade(lease.id));
    }
  }

  /** Return the GPU the way `%gpu return` does: nothing is lost unasked. */
  async giveBack(lease = this.lease(), panel = this.panel): Promise<void> {
    if (lease === null) {
      return;
    }
    const kernel = this.link(panel)?.kernel ?? null;
    const using = kernel !== null && this.link(panel)?.attached === lease.id;
    const serving = lease.state === 'active' || lease.state === 'warned';
    if (!serving || !using || this.link(panel)?.state?.phase === 'none') {
      await this.attempt(() => this.leases.api.end(lease.id));
      return;
    }
    if ((await runsCell(kernel)) && !(await this.interruptFirst(kernel))) {
      return;
    }
    const refused = await run(kernel, '%gpu return');
    if (refused && (await this.anyway(refused))) {
      const still = await run(kernel, '%gpu return --force');
      if (still) {
        Notification.error(still, { autoClose: false });
      }
    }
  }

  /** Run the whole notebook in a server of its own; that reads the file, so it is saved first. */
  async runInBackground(panel = this.panel): Promise<void> {
    if (panel === null) {
      return;
    }
    const { trans } = this;
    const { api, page } = this.leases;
    const { context } = panel;
    await context.save();
    await this.attempt(async () => {
      const { result } = await api.submit(context.localPath);
      const show = {
        label: trans.__('Background runs'),
        callback: () => void window.open(page, '_blank', 'noopener')
      };
      Notification.success(
        trans.__(
          '%1 runs in the background. Its output will be in %2.',
          PathExt.basename(context.localPath),
          PathExt.basename(result)
        ),
        { autoClose: 30_000, actions: page ? [show] : [] }
      );
    });
  }

  async why(): Promise<void> {
    const { leases, trans } = this;
    await showDialog({
      title: trans.__('Your GPU'),
      body: new Why(() => this.lease(), leases, trans),
      buttons: [Dialog.okButton({ label: trans.__('Close') })]
    });
  }

  private async interruptFirst(kernel: Kernel.IKernelConnection): Promise<boolean> {
    const { trans } = this;
    const answer = await showDialog({
      title: trans.__('A cell is running'),
      body: trans.__(
        'Your variables are copied back to the notebook when it has finished. Interrupt it now?'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.okButton({ label: trans.__('Release when it has finished') }),
        Dialog.warnButton({ label: trans.__('Interrupt and release') })
      ],
      defaultButton: 0
    });
    if (!answer.button.accept) {
      return false;
    }
    if (answer.button.displayType === 'warn') {
      await kernel.interrupt();
    }
    return true;
  }

  private async anyway(refused: string): Promise<boolean> {
    const { trans } = this;
    const answer = await showDialog({
      title: trans.__('The GPU was kept'),
      body: refused,
      buttons: [
        Dialog.cancelButton({ label: trans.__('Keep the GPU') }),
        Dialog.warnButton({ label: trans.__('Release it and lose them') })
      ],
      defaultButton: 0
    });
    return answer.button.accept;
  }

  private async attempt(act: () => Promise<unknown>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof Problem)) {
        Notification.error(
          this.trans.__('The notebook server did not answer. Try again in a moment.')
        );
        throw error;
      }
      Notification.error([error.message, error.nextStep].filter(Boolean).join(' '), {
        autoClose: 15_000
      });
    }
    await this.leases.refresh().catch(() => undefined);
  }
}

/** Run a line in a kernel; return what it refused with, "" when it went well. */
/** A message makes a kernel busy for a moment, too: one that answers soon runs no cell. */
async function runsCell(kernel: Kernel.IKernelConnection): Promise<boolean> {
  if (kernel.status !== 'busy') {
    return false;
  }
  const late = new Promise<boolean>(resolve => {
    setTimeout(() => resolve(true), ANSWERS_WITHIN);
  });
  const answered = kernel.requestKernelInfo().then(
    () => false,
    () => false // it is gone: what is sent to it says so
  );
  return Promise.race([answered, late]);
}

async function run(kernel: Kernel.IKernelConnection, code: string): Promise<string> {
  const future = kernel.requestExecute({
    code,
    silent: false,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false
  });
  const reply = (await future.done) as KernelMessage.IExecuteReplyMsg;
  return reply.content.status === 'error' ? reply.content.evalue : '';
}
