// The mark of cells that ran on the GPU, beside their number.  The cell's metadata keep on what kind
// of GPU, which equal runs do not change; how long it took is known while the page lives.

import { Cell, CodeCell, ICellModel } from '@jupyterlab/cells';
import { Notebook, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';

import { gpuIcon } from './icon';
import type { NotebookLink } from './notebooks';
import type { Options } from './options';
import { day, hour, roughly, size } from './time';
import type { ICellRun } from './wire';

/** The cell's metadata of this extension. */
const KEY = 'gpulease';
const MARK = 'gpulease-mark';

/** What is known of a cell's run: all of it, or what its metadata keep. */
type Kept = Pick<ICellRun, 'gpu_class'> & Partial<ICellRun>;

/** Marks the cells of one notebook. */
export class Marks implements IDisposable {
  isDisposed = false;

  constructor(
    private readonly panel: NotebookPanel,
    private readonly link: NotebookLink,
    private readonly options: Options,
    private readonly trans: TranslationBundle,
    private readonly open: () => void
  ) {
    link.ran.connect(this.ran, this);
    NotebookActions.executionScheduled.connect(this.scheduled, this);
    options.changed.connect(this.drawAll, this);
    void panel.context.ready.then(() => {
      if (!this.isDisposed) {
        panel.content.model?.cells.changed.connect(this.drawAll, this);
        this.drawAll();
      }
    });
    panel.disposed.connect(() => this.dispose());
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.isDisposed = true;
      this.link.ran.disconnect(this.ran, this);
      NotebookActions.executionScheduled.disconnect(this.scheduled, this);
      this.options.changed.disconnect(this.drawAll, this);
    }
  }

  /** A cell that runs again has not run on the GPU yet. */
  private scheduled(_: unknown, args: { notebook: Notebook; cell: Cell }): void {
    if (args.notebook === this.panel.content) {
      this.started.add(args.cell.model.id);
      this.runs.delete(args.cell.model.id);
      args.cell.model.deleteMetadata(KEY);
      this.draw(args.cell);
    }
  }

  private ran(_: unknown, run: ICellRun): void {
    // Another tab's cell is that tab's to mark: here its output is not shown either.
    if (!this.started.delete(run.cell_id)) {
      return;
    }
    const cell = this.panel.content.widgets.find(each => each.model.id === run.cell_id);
    if (cell !== undefined) {
      this.runs.set(run.cell_id, run);
      if (this.options.savedMarks) {
        cell.model.setMetadata(KEY, { gpu_class: run.gpu_class });
      }
      this.draw(cell);
    }
  }

  private drawAll(): void {
    this.panel.content.widgets.forEach(cell => this.draw(cell));
  }

  private draw(cell: Cell): void {
    if (!(cell instanceof CodeCell)) {
      return;
    }
    const kept = this.runs.get(cell.model.id) ?? marked(cell.model);
    const node = cell.node;
    const old = node.querySelector<HTMLElement>(`:scope .${MARK}`);
    if (kept === null || !this.options.marks) {
      old?.remove();
      return;
    }
    const text = this.describe(kept);
    if (old?.title === text) {
      return;
    }
    old?.remove();
    void cell.ready.then(() => {
      const area = node.querySelector('.jp-InputArea');
      if (cell.isDisposed || area === null || node.querySelector(`:scope .${MARK}`)) {
        return;
      }
      const mark = document.createElement('button');
      mark.type = 'button';
      mark.className = MARK;
      gpuIcon.element({ container: mark });
      mark.title = text;
      mark.setAttribute('aria-label', text);
      mark.onclick = this.open;
      area.append(mark);
    });
  }

  private describe(kept: Kept): string {
    const { trans } = this;
    const name = kept.device || kept.gpu_class;
    if (!isRun(kept)) {
      return trans.__('Ran on the GPU (%1)', name);
    }
    const lines = [
      trans.__('Ran on the GPU (%1) in %2', name, took(kept.seconds)),
      kept.moved_bytes
        ? trans.__('%1 moved in %2', size(kept.moved_bytes), took(kept.moved_seconds))
        : trans.__('No variables moved'),
      trans.__('Ended %1, %2', day(kept.ended), hour(kept.ended))
    ];
    return lines.join('\n');
  }

  private readonly started = new Set<string>();
  private readonly runs = new Map<string, ICellRun>();
}

function isRun(kept: Kept): kept is ICellRun {
  return kept.ended !== undefined;
}

/** What a cell's metadata says of its run; `null` for anything that is not ours. */
export function marked(model: ICellModel): Kept | null {
  const found = model.getMetadata(KEY) as Kept | undefined;
  return typeof found?.gpu_class === 'string' ? { gpu_class: found.gpu_class } : null;
}

function took(seconds: number): string {
  return seconds < 10 ? `${seconds.toFixed(seconds < 1 ? 2 : 1)} s` : roughly(seconds);
}
