// The mark of cells that ran on the GPU, beside their number; kept in the cell's metadata.

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

type Kept = Omit<ICellRun, 'cell_id'>;

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
      const kept: Partial<ICellRun> = { ...run };
      delete kept.cell_id;
      cell.model.setMetadata(KEY, kept);
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
    const kept = marked(cell.model);
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
}

/** What a cell's metadata says of its run; `null` for anything that is not ours. */
export function marked(model: ICellModel): Kept | null {
  const found = model.getMetadata(KEY) as Kept | undefined;
  return found && typeof found === 'object' && typeof found.seconds === 'number'
    ? found
    : null;
}

function took(seconds: number): string {
  return seconds < 10 ? `${seconds.toFixed(seconds < 1 ? 2 : 1)} s` : roughly(seconds);
}
