// This server's leases as the front end knows them.

import { URLExt } from '@jupyterlab/coreutils';
import { Event, ServerConnection, ServiceManager } from '@jupyterlab/services';
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Api } from './api';
import { Options } from './options';
import { LEASE_SCHEMA } from './wire';
import type { IGPUClass, ILease, IMessage, IStatus, LeaseEvent } from './wire';

export const ILeases = new Token<ILeases>(
  'gpulease:ILeases',
  'The GPU leases of this notebook server.'
);

/** One change of a lease; `before` is `null` for one that is new here. */
export interface ILeaseChange {
  before: ILease | null;
  after: ILease;
}

export interface ILeases {
  readonly api: Api;
  readonly options: Options;
  /** Resolves with `false` where the server extension is missing. */
  readonly present: Promise<boolean>;
  /** Whether there is a lease service to ask. */
  readonly hub: boolean;
  /** Whether the lease service answers now. */
  readonly up: boolean;
  readonly live: readonly ILease[];
  readonly classes: readonly IGPUClass[];
  /** What instructors and admins tell this person now. */
  readonly messages: readonly IMessage[];
  /** Leases that ended while this page was open, newest first. */
  readonly ended: readonly ILease[];
  /** The address of the lease service's page, "" where there is none. */
  readonly page: string;
  /** Where people read how to use a GPU here; of use where there is a page. */
  readonly help: string;
  /** Anything changed. */
  readonly changed: ISignal<ILeases, void>;
  /** One lease moved on. */
  readonly moved: ISignal<ILeases, ILeaseChange>;
  /** Once a second while somebody looks and something counts down. */
  readonly tick: ISignal<ILeases, void>;
  /** The service's clock, in ms. */
  now(): number;
  find(id: string | null): ILease | null;
  /** The lease that a kernel's cells use, or would. */
  of(kernelId: string | null, attached: string | null): ILease | null;
  refresh(): Promise<void>;
}

/** Events come by Lab's own websocket; this is for those that were lost with it (ms). */
const RESYNC = 60_000;
const ENDED_KEPT = 5;

export class Leases implements ILeases, IDisposable {
  readonly api: Api;
  readonly options = new Options();
  readonly present: Promise<boolean>;
  hub = false;
  up = false;
  page = '';
  help = '';
  classes: readonly IGPUClass[] = [];
  messages: readonly IMessage[] = [];
  ended: ILease[] = [];

  constructor(
    private readonly events: Event.IManager,
    settings: ServerConnection.ISettings,
    private readonly language: string,
    manager?: ServiceManager.IManager
  ) {
    this.api = new Api(settings);
    this.present = this.open();
    manager?.connectionFailure.connect(
      () => void this.refresh().catch(() => undefined)
    );
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get moved(): ISignal<this, ILeaseChange> {
    return this._moved;
  }

  get tick(): ISignal<this, void> {
    return this._tick;
  }

  get live(): readonly ILease[] {
    return [...this._live.values()];
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  now(): number {
    return Date.now() + this._offset;
  }

  find(id: string | null): ILease | null {
    return (id !== null && this._live.get(id)) || null;
  }

  of(kernelId: string | null, attached: string | null): ILease | null {
    const newest = [...this.live].sort(
      (a, b) => Date.parse(b.created) - Date.parse(a.created)
    );
    return (
      this.find(attached) ??
      newest.find(lease => lease.kernel_id === kernelId) ??
      newest[0] ??
      null
    );
  }

  async refresh(): Promise<void> {
    const status = await this.api.status();
    if (status !== null) {
      this.take(status);
    }
  }

  dispose(): void {
    this._disposed = true;
    this._poll?.dispose();
    clearInterval(this._timer);
    this.events.stream.disconnect(this.heard, this);
    Signal.clearData(this);
  }

  private async open(): Promise<boolean> {
    // Events that come while the first answer is on its way must not be lost.
    this.events.stream.connect(this.heard, this);
    let status: IStatus | null = null;
    try {
      status = await this.api.status(this.language);
    } catch (error) {
      console.warn('gpulease: no answer of the server extension', error);
    }
    if (status === null) {
      this.events.stream.disconnect(this.heard, this);
      return false;
    }
    this.take(status);
    this._poll = new Poll({
      name: 'gpulease:resync',
      auto: true,
      factory: () => this.refresh(),
      frequency: { interval: RESYNC, backoff: true, max: 10 * RESYNC },
      standby: 'when-hidden'
    });
    return true;
  }

  private heard(_: unknown, emission: Event.Emission): void {
    if (emission.schema_id === LEASE_SCHEMA) {
      this.follow(emission as unknown as LeaseEvent);
    }
  }

  private take(status: IStatus): void {
    this.hub = status.hub;
    this.up = status.up;
    this.page = status.service_page ?? '';
    this.help = URLExt.join(this.page, 'help');
    this.classes = status.classes;
    this.messages = status.messages ?? [];
    this.clockIs(status.now);
    this.replace(status.leases);
    this.tell();
  }

  private follow(event: LeaseEvent): void {
    this.clockIs(event.now);
    switch (event.event) {
      case 'snapshot':
        this.classes = event.classes;
        this.replace(event.leases);
        break;
      case 'lease':
        this.move(event.lease);
        break;
      case 'classes':
        this.classes = event.classes;
        break;
      case 'messages':
        this.messages = event.messages;
        break;
      case 'link':
        this.up = event.up;
    }
    this.tell();
  }

  private replace(leases: ILease[]): void {
    const ids = new Set(leases.map(lease => lease.id));
    for (const id of [...this._live.keys()]) {
      if (!ids.has(id)) {
        this._live.delete(id);
      }
    }
    leases.forEach(lease => this.move(lease));
  }

  private move(after: ILease): void {
    const before = this._live.get(after.id) ?? null;
    if (before !== null && before.version > after.version) {
      return;
    }
    if (after.state === 'ended') {
      if (this.ended.some(lease => lease.id === after.id)) {
        return;
      }
      this._live.delete(after.id);
      this.ended = [after, ...this.ended].slice(0, ENDED_KEPT);
    } else {
      this._live.set(after.id, after);
    }
    this._moved.emit({ before, after });
  }

  private clockIs(now: string | undefined): void {
    if (now) {
      this._offset = Date.parse(now) - Date.now();
    }
  }

  private tell(): void {
    this._changed.emit();
    const counts = this._live.size > 0;
    if (counts && this._timer === undefined) {
      this._timer = setInterval(() => this._tick.emit(), 1000);
    } else if (!counts && this._timer !== undefined) {
      clearInterval(this._timer);
      this._timer = undefined;
    }
  }

  private readonly _live = new Map<string, ILease>();
  private readonly _changed = new Signal<this, void>(this);
  private readonly _moved = new Signal<this, ILeaseChange>(this);
  private readonly _tick = new Signal<this, void>(this);
  private _offset = 0;
  private _timer: ReturnType<typeof setInterval> | undefined;
  private _poll: Poll | null = null;
  private _disposed = false;
}
