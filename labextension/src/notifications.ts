// What is said when a lease moves on: in Lab, and by the browser while the tab is hidden.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import type { Actions } from './actions';
import type { ILeaseChange } from './leases';
import { second, until } from './time';
import { better, isLess, isNews } from './wishes';
import { gpuName, here, IDLE_REASONS, shortWithGPU } from './words';
import type { ILease } from './wire';

/** Whoever waited for less (s) is still looking, and needs no word that the GPU is there. */
const WAITED = 10;
/** These ends a person brought about here and now. */
const OWN = new Set(['returned', 'withdrawn']);

export class Notifier {
  constructor(private readonly actions: Actions) {
    const { leases } = actions;
    this.trans = actions.trans;
    leases.moved.connect((_, change) => this.moved(change));
    leases.tick.connect(() => this.title());
    leases.changed.connect(() => this.title());
    leases.changed.connect(() => this.messages());
    document.addEventListener('visibilitychange', () => this.title());
    leases.live.forEach(after => this.moved({ before: null, after }));
    this.messages();
  }

  private moved({ before, after }: ILeaseChange): void {
    const was = before?.state;
    if (after.state === 'active' && isNews(before, after)) {
      this.grows(after);
      return;
    }
    if (before?.upgrade && !after.upgrade) {
      this.forget(after);
    }
    if (after.state === was && after.warned_until === before?.warned_until) {
      return;
    }
    if (after.state === 'warned') {
      this.warned(after);
      return;
    }
    this.forget(after);
    if (after.state === 'active' && (was === 'queued' || was === 'starting')) {
      this.granted(after);
    } else if (after.state === 'ended' && before !== null) {
      this.ended(after);
    }
  }

  /** Each message once in this browser, also over a reload; one that is taken back goes. */
  private messages(): void {
    const now = this.actions.leases.now();
    const current = this.actions.leases.messages.filter(
      each => Date.parse(each.until) > now
    );
    for (const [id, shown] of this.told) {
      if (!current.some(each => each.id === id)) {
        this.told.delete(id);
        Notification.dismiss(shown);
      }
    }
    for (const each of current) {
      if (!this.told.has(each.id) && !read().includes(each.id)) {
        remember(each.id);
        const text = `${each.by}${each.group && ` (${each.group})`}: ${each.text}`;
        this.told.set(each.id, Notification.emit(text, 'info', { autoClose: false }));
        this.system(each.id, text);
      }
    }
  }

  private granted(lease: ILease): void {
    const waited = (this.actions.leases.now() - Date.parse(lease.created)) / 1000;
    if (isLess(lease)) {
      this.say(lease, 'info', here(lease.sentence, this.actions.leases.now()), 30_000);
      return;
    }
    if (waited < WAITED && !document.hidden) {
      return;
    }
    const name = gpuName(lease, this.actions.leases.classes, this.trans);
    this.say(lease, 'success', this.trans.__('Your GPU is ready: %1.', name), 10_000);
  }

  /** What was asked for is free: it comes by a click only, for the notebook moves there. */
  private grows(lease: ILease): void {
    const { trans } = this;
    const move = {
      label: trans.__('Move'),
      displayType: 'accent' as const,
      callback: () => void this.actions.upgrade(lease)
    };
    const text = trans.__(
      'What you requested is available now: %1. Your variables move with it.',
      better(lease.upgrade!, trans)
    );
    this.say(lease, 'info', text, false, [move]);
  }

  private warned(lease: ILease): void {
    const { trans } = this;
    const { leases } = this.actions;
    // When, and not in how long: a notification stands while the button counts down.
    const text =
      lease.warned_until && IDLE_REASONS.has(lease.reason)
        ? trans.__(
            'Your GPU is idle and will be released at %1. Your variables stay in the notebook.',
            second(lease.warned_until)
          )
        : here(lease.sentence, leases.now());
    const keep = {
      label: trans.__('Keep'),
      displayType: 'accent' as const,
      callback: () => void this.actions.keep(lease)
    };
    const giveBack = {
      label: trans.__('Release'),
      callback: () => void this.actions.giveBack(lease)
    };
    const actions = lease.keep.allowed ? [keep, giveBack] : [giveBack];
    this.say(lease, 'warning', text, false, actions);
  }

  private ended(lease: ILease): void {
    const end = lease.end;
    if (end === null || OWN.has(end.reason)) {
      return;
    }
    const { trans } = this;
    const lost = end.lost?.length ?? 0;
    const text = [
      here(end.sentence, this.actions.leases.now()),
      lost
        ? trans._n('%1 variable is lost.', '%1 variables are lost.', lost, lost)
        : trans.__('Your variables are in the notebook.')
    ];
    const again = {
      label: trans.__('Request GPU'),
      callback: () => void this.actions.request()
    };
    const kind = lost || end.note ? 'warning' : 'info';
    this.say(
      lease,
      kind,
      text.filter(Boolean).join(' '),
      kind === 'info' ? 30_000 : false,
      [again]
    );
  }

  private say(
    lease: ILease,
    kind: 'success' | 'info' | 'warning',
    text: string,
    autoClose: number | false,
    actions: Notification.IAction[] = []
  ): void {
    if (this.actions.options.notifications) {
      this.forget(lease);
      const id = Notification.emit(text, kind, { autoClose, actions });
      this.shown.set(lease.id, id);
    }
    this.system(lease.id, text);
  }

  /** The browser's own, where it is allowed; one for each lease, the newest. */
  private system(tag: string, text: string): void {
    const { systemNotifications } = this.actions.options;
    const supported = 'Notification' in window;
    if (!document.hidden || !systemNotifications || !supported) {
      return;
    }
    if (window.Notification.permission !== 'granted') {
      return;
    }
    const said = new window.Notification(this.trans.__('GPU'), {
      body: text,
      tag
    });
    said.onclick = () => {
      window.focus();
      said.close();
    };
  }

  private forget(lease: ILease): void {
    const id = this.shown.get(lease.id);
    if (id !== undefined) {
      this.shown.delete(lease.id);
      Notification.dismiss(id);
    }
  }

  /** A hidden tab's title counts down; Lab's own title comes back with the reader. */
  private title(): void {
    const { leases, options, trans } = this.actions;
    const warned = leases.live.find(lease => lease.state === 'warned');
    const left = until(warned?.warned_until, leases.now());
    const bare = this.bare(document.title);
    const wanted =
      warned === undefined ||
      left === null ||
      !document.hidden ||
      !options.countdownInTitle
        ? bare
        : `${shortWithGPU(warned, leases.classes, leases.now(), trans).text}${SEPARATOR}${bare}`;
    if (document.title !== wanted) {
      document.title = wanted;
    }
  }

  private bare(title: string): string {
    const at = title.indexOf(SEPARATOR);
    return at < 0 ? title : title.slice(at + SEPARATOR.length);
  }

  private readonly trans: TranslationBundle;
  private readonly shown = new Map<string, string>();
  private readonly told = new Map<string, string>();
}

const READ = 'gpulease:messages';
const READ_KEPT = 50;

/** Ids of messages that this browser has shown; without storage each page load shows them anew. */
function read(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(READ) ?? '[]');
    return Array.isArray(found) ? found.map(String) : [];
  } catch {
    return [];
  }
}

function remember(id: string): void {
  try {
    localStorage.setItem(READ, JSON.stringify([id, ...read()].slice(0, READ_KEPT)));
  } catch {
    // not remembered, but shown
  }
}

const SEPARATOR = ' \u2014\u200a';
