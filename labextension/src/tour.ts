// The first use: four steps, each beside what it is about.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import type { Actions } from './actions';
import type { INotebooks } from './notebooks';

interface IStep {
  /** What it stands beside; a step whose place is not on the screen is left out. */
  place: string;
  text: string;
}

/** What a step is about has this class. */
const TARGET = 'gpulease-tour-target';

function steps(trans: TranslationBundle): IStep[] {
  return [
    {
      place: '.gpulease-button',
      text: trans.__(
        'One click requests a GPU for this notebook. The button then shows your place in the queue, the time left, and warnings.'
      )
    },
    {
      place: '.jp-Notebook .jp-InputPrompt',
      text: trans.__(
        'Cells that begin with %%%%gpu run on the GPU, the others in your notebook. The variables are the same. Cells that ran on the GPU are marked beside their number.'
      )
    },
    {
      place: '.gpulease-status-item',
      text: trans.__(
        'An idle GPU is released after a warning, so that others can use it. Your variables stay in the notebook, and the next GPU cell gets a GPU again.'
      )
    },
    {
      place: '[data-id="gpulease-panel"], .gpulease-panel',
      text: trans.__(
        'The panel shows the rest: where each variable is, why it stays there, and the history.'
      )
    }
  ];
}

/** Offer the tour once, when the first notebook with a button is there. */
export function offerTour(actions: Actions, notebooks: INotebooks): void {
  const { leases, options, trans } = actions;
  const offer = (): void => {
    const ready = actions.link()?.state;
    if (!ready || !options.loaded || options.toured || !leases.hub) {
      return;
    }
    stop();
    options.set('toured', true);
    Notification.info(trans.__('This notebook can use a GPU.'), {
      autoClose: 20_000,
      actions: [
        {
          label: trans.__('Show me'),
          displayType: 'accent',
          callback: () => showTour(trans)
        }
      ]
    });
  };
  const stop = (): void => {
    notebooks.changed.disconnect(offer);
    options.changed.disconnect(offer);
  };
  notebooks.changed.connect(offer);
  options.changed.connect(offer);
  offer();
}

export function showTour(trans: TranslationBundle): void {
  document.querySelector('.gpulease-tour')?.remove();
  const found = steps(trans).filter(step => place(step) !== null);
  const before = document.activeElement as HTMLElement | null;
  const box = document.createElement('div');
  box.className = 'gpulease-tour';
  box.setAttribute('role', 'dialog');
  box.setAttribute('aria-label', trans.__('GPU tour'));
  const text = document.createElement('p');
  const count = document.createElement('span');
  count.className = 'gpulease-quiet';
  const close = button(trans.__('Close'), '', () => end());
  const next = button(trans.__('Next'), 'jp-mod-accept', () => show(at + 1));
  const row = document.createElement('div');
  row.className = 'gpulease-actions';
  row.append(count, close, next);
  text.id = 'gpulease-tour-text';
  box.setAttribute('aria-describedby', text.id);
  box.append(text, row);
  let at = 0;

  const point = (target: Element | null): void => {
    document.querySelector(`.${TARGET}`)?.classList.remove(TARGET);
    target?.classList.add(TARGET);
  };
  const end = (): void => {
    point(null);
    box.remove();
    before?.focus();
  };
  const show = (step: number): void => {
    if (step >= found.length) {
      end();
      return;
    }
    at = step;
    text.textContent = found[step].text;
    count.textContent = trans.__('%1 of %2', step + 1, found.length);
    next.textContent = step + 1 < found.length ? trans.__('Next') : trans.__('Done');
    const target = place(found[step]);
    point(target);
    beside(box, target?.getBoundingClientRect() ?? null);
    next.focus();
  };
  box.addEventListener('keydown', event => {
    if (event.key === 'Escape') {
      end();
    }
  });
  document.body.append(box);
  show(0);
  // The palette that led here gives the focus back to where it was, and does so after this.
  setTimeout(() => next.focus());
}

function button(label: string, more: string, act: () => void): HTMLButtonElement {
  const made = document.createElement('button');
  made.type = 'button';
  made.className = `jp-mod-styled ${more}`;
  made.textContent = label;
  made.onclick = act;
  return made;
}

/** The first of a step's places that is on the screen. */
function place(step: IStep): Element | null {
  for (const node of document.querySelectorAll(step.place)) {
    const { width, top, bottom } = node.getBoundingClientRect();
    if (width > 0 && top >= 0 && bottom <= innerHeight) {
      return node;
    }
  }
  return null;
}

const GAP = 8;

/** Below what it is about, or above, or in its middle where it fills the window. */
function beside(box: HTMLElement, target: DOMRect | null): void {
  const own = box.getBoundingClientRect();
  const rect = target ?? new DOMRect(innerWidth / 2, innerHeight / 2);
  const below = rect.bottom + GAP;
  const above = rect.top - GAP - own.height;
  let [top, left] = [below, rect.left];
  if (below + own.height > innerHeight) {
    top = above;
  }
  if (top < 0) {
    top = rect.top + (rect.height - own.height) / 2;
    left = rect.left + (rect.width - own.width) / 2;
  }
  box.style.top = `${within(top, innerHeight - own.height)}px`;
  box.style.left = `${within(left, innerWidth - own.width)}px`;
}

function within(at: number, most: number): number {
  return Math.max(GAP, Math.min(at, most - GAP));
}
