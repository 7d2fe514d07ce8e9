// What each notebook's kernel says of its GPU cells, by the kernel extension's comm.

import { ISessionContext } from '@jupyterlab/apputils';
import { INotebookModel, INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { JSONObject, Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { readersClock } from './time';
import type { ICellRun, INotebookState, Which } from './wire';

export const INotebooks = new Token<INotebooks>(
  'gpulease:INotebooks',
  'What the kernels of open notebooks say of their GPU cells.'
);

export interface INotebooks {
  of(panel: NotebookPanel): NotebookLink;
  /** The notebook in front. */
  readonly current: NotebookPanel | null;
  /** Another notebook came to the front, or the one in front changed. */
  readonly changed: ISignal<INotebooks, void>;
}

const TARGET = 'gpulease';
/** The notebook's metadata of this extension. */
const KEY = 'gpulease';
const MAJOR = '1.';

type Said =
  | { type: 'snapshot' | 'delta'; protocol: string; version: number; state: object }
  | { type: 'problem'; reason: string };

/** One notebook's kernel; kernels come and go. */
export class NotebookLink implements IDisposable {
  /** `null` until the kernel has spoken. */
  state: INotebookState | null = null;
  /** Whether this kernel could have GPU cells: a Python one. */
  python = false;
  /** Whether the kernel answered that it has no gpulease. */
  missing = false;

  constructor(
    private readonly context: ISessionContext,
    private readonly notebook: () => INotebookModel | null
  ) {
    context.kernelChanged.connect(this.renew, this);
    context.statusChanged.connect(this.status, this);
    this.renew();
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** A GPU cell of this notebook ended. */
  get ran(): ISignal<this, ICellRun> {
    return this._ran;
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this.context.session?.kernel ?? null;
  }

  get attached(): string | null {
    return this.state?.lease_id ?? null;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Let these cells run on the GPU. */
  choose(which: Which): void {
    this._comm?.send({ type: 'cells', which });
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    this.context.kernelChanged.disconnect(this.renew, this);
    this.context.statusChanged.disconnect(this.status, this);
    this.drop();
    Signal.clearData(this);
  }

  private status(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this.drop();
    } else if ((status === 'idle' || status === 'busy') && this._comm === null) {
      this.renew();
    }
    this._changed.emit();
  }

  private drop(): void {
    const comm = this._comm;
    this._comm = null;
    this.state = null;
    this.missing = false;
    if (comm !== null && !comm.isDisposed) {
      comm.onClose = () => undefined;
      comm.onMsg = () => undefined;
      if (this.kernel?.connectionStatus === 'connected') {
        comm.close();
      }
      comm.dispose();
    }
  }

  private renew(): void {
    this.drop();
    this.python = false;
    const kernel = this.kernel;
    if (kernel !== null) {
      void this.open(kernel).catch(error => console.debug('gpulease: no comm', error));
    }
    this._changed.emit();
  }

  private async open(kernel: Kernel.IKernelConnection): Promise<void> {
    const info = await kernel.info;
    if (this.kernel !== kernel || this._comm !== null || this._disposed) {
      return;
    }
    this.python = info.language_info.name === 'python';
    if (!this.python || !kernel.handleComms) {
      this._changed.emit();
      return;
    }
    const comm = kernel.createComm(TARGET);
    comm.onMsg = message => this.heard(comm, message);
    comm.onClose = () => {
      // A kernel without gpulease closes what it has no target for.
      this.missing = this.state === null;
      this.state = null;
      this._changed.emit();
    };
    this._comm = comm;
    comm.open();
    comm.send({ type: 'clock', ...readersClock() });
    this._changed.emit();
  }

  private heard(comm: Kernel.IComm, message: KernelMessage.ICommMsgMsg): void {
    const said = message.content.data as unknown as Said;
    if (comm !== this._comm || said.type === 'problem') {
      return;
    }
    if (!said.protocol.startsWith(MAJOR)) {
      return;
    }
    if (said.type === 'snapshot') {
      this.state = said.state as INotebookState;
      this.tell(comm);
    } else if (this.state === null || said.version !== this._version + 1) {
      comm.send({ type: 'snapshot' });
    } else {
      this.state = { ...this.state, ...said.state };
      const kept = (said.state as Partial<INotebookState>).kept;
      if (kept !== undefined) {
        this.keep(kept);
      }
      const run = (said.state as Partial<INotebookState>).last_cell;
      if (run?.cell_id) {
        this._ran.emit(run as ICellRun);
      }
    }
    this._version = said.version;
    this._changed.emit();
  }

  /** A kernel that was told nothing gets what the notebook's file has. */
  private tell(comm: Kernel.IComm): void {
    const config: unknown = this.notebook()?.getMetadata(KEY);
    if (isPlain(config) && Object.keys(this.state?.kept ?? {}).length === 0) {
      comm.send({ type: 'kept', config });
    }
  }

  private keep(kept: INotebookState['kept']): void {
    const model = this.notebook();
    const old: unknown = model?.getMetadata(KEY);
    if (model && JSON.stringify(isPlain(old) ? old : {}) !== JSON.stringify(kept)) {
      if (Object.keys(kept).length > 0) {
        model.setMetadata(KEY, kept);
      } else {
        model.deleteMetadata(KEY);
      }
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _ran = new Signal<this, ICellRun>(this);
  private _comm: Kernel.IComm | null = null;
  private _version = 0;
  private _disposed = false;
}

function isPlain(value: unknown): value is JSONObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export class Notebooks implements INotebooks {
  constructor(private readonly tracker: INotebookTracker) {
    tracker.widgetAdded.connect((_, panel) => this.of(panel));
    tracker.forEach(panel => this.of(panel));
    tracker.currentChanged.connect(() => this._changed.emit());
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get current(): NotebookPanel | null {
    return this.tracker.currentWidget;
  }

  of(panel: NotebookPanel): NotebookLink {
    let link = this._links.get(panel);
    if (link === undefined) {
      link = new NotebookLink(panel.sessionContext, () => panel.model);
      this._links.set(panel, link);
      link.changed.connect(() => panel === this.current && this._changed.emit());
      panel.disposed.connect(() => {
        this._links.get(panel)?.dispose();
        this._links.delete(panel);
      });
    }
    return link;
  }

  private readonly _links = new Map<NotebookPanel, NotebookLink>();
  private readonly _changed = new Signal<this, void>(this);
}
