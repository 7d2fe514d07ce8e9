// What the server extension and the kernel say: the shapes of `gpulease/protocol/service.py` and
// `gpulease/kernel/front.py`.  Times are ISO 8601 with offset, durations seconds, sizes bytes.

export type LeaseState =
  'queued' | 'starting' | 'active' | 'warned' | 'draining' | 'ended';

export interface IBlocker {
  name: string;
  reason: string;
  sentence: string;
  size: number | null;
}

/** What a lease can be now: nearer to what was asked for. */
export interface IUpgrade {
  gpu_class: string;
  title: string;
  count: number;
  percent?: number;
}

export interface ILease {
  id: string;
  version: number;
  user: string;
  server: string;
  kernel_id: string | null;
  gpu_class: string;
  count: number;
  /** Of a card, where it has a part of one. */
  percent?: number;
  simulated: boolean;
  state: LeaseState;
  reason: string;
  sentence: string;
  next_step: string;
  position: number | null;
  expected_start: string | null;
  created: string;
  active_since: string | null;
  warned_until: string | null;
  drain_until: string | null;
  /** What ends it, or warns of its end, next: when, and what. */
  ends_at: string | null;
  ends_by:
    | ''
    | 'released'
    | 'drained'
    | 'idle_warning'
    | 'exam'
    | 'seat'
    | 'reserved'
    | 'hard_limit'
    | 'budget';
  verdict: string;
  utilisation: number | null;
  memory_used?: number | null;
  /** What was asked for, where it is not what there is: "" and 0 where it is. */
  asked_class?: string;
  asked_count?: number;
  asked_percent?: number;
  /** What of that is free now. */
  upgrade?: IUpgrade | null;
  keep: { allowed: boolean; left: number; seconds: number; reason: string };
  devices: { uuid: string; name: string; memory: number; simulated: boolean }[];
  end: {
    reason: string;
    sentence: string;
    note: string;
    at: string;
    parked?: number;
    lost?: IBlocker[];
  } | null;
  blockers?: IBlocker[];
  busy_share?: number | null;
}

export interface IGPUClass {
  name: string;
  title: string;
  memory: number;
  simulated: boolean;
  total: number;
  free: number;
  /** Beside those that are free: kept for seats of a reservation. */
  reserved?: number;
  /** Classes of one pool have the same devices. */
  pool?: string;
  queued: number;
  max_count?: number;
  /** Of a card, that one GPU of it is. */
  percent?: number;
  /** With these percents of a card a lease of it can go on. */
  steps?: number[];
  price?: number;
  /** Of one device asked for now; `null` is unknown. */
  expected_start?: string | null;
  /** Seconds that adding a machine for a request usually takes; `null` is not now. */
  provision?: number | null;
}

/** What an instructor or an admin tells this person. */
export interface IMessage {
  id: string;
  at: string;
  until: string;
  by: string;
  /** "" is everybody. */
  group: string;
  text: string;
}

/** A window of a reservation that is not over. */
export interface IWindow {
  start: string;
  end: string;
  /** With the person's extra time. */
  end_for_you: string;
  state: 'coming' | 'lead' | 'open' | 'over';
  seats: number;
  claimed: number;
}

export interface IReservation {
  id: string;
  group: string;
  gpu_class: string;
  title?: string;
  /** Of the course's own environment; "" where it has none. */
  image?: string;
  cancelled: boolean;
  /** Whether the person may have one of its seats. */
  mine: boolean;
  windows: IWindow[];
}

/** A project that the person's leases may be charged to. */
export interface IProject {
  name: string;
  title: string;
  mine: boolean;
  /** GPU-hours at the class's price; `null` where nobody counts them. */
  budget: { left: number; of: number; until: string } | null;
}

/** A notebook that runs in the background. */
export interface IRun {
  id: string;
  /** The path of the notebook with its output. */
  result: string;
}

export interface IStatus {
  hub: boolean;
  up: boolean;
  now: string;
  service_page?: string;
  leases: ILease[];
  classes: IGPUClass[];
  messages?: IMessage[];
}

/** An event of `urn:gpulease:lab:lease:v1`. */
export type LeaseEvent = { now?: string } & (
  | { event: 'snapshot'; leases: ILease[]; classes: IGPUClass[] }
  | { event: 'lease'; lease: ILease }
  | { event: 'classes'; classes: IGPUClass[] }
  | { event: 'messages'; messages: IMessage[] }
  | { event: 'link'; up: boolean }
);

export const LEASE_SCHEMA = 'urn:gpulease:lab:lease:v1';

export type Phase = 'none' | 'waiting' | 'attached' | 'draining' | 'gone';

export interface IVariable {
  type: string;
  place: 'home' | 'both' | 'gpu' | 'lost' | 'conflicted' | 'parked';
  size: number | null;
  verified: boolean;
  blocker: string;
  /** The variable whose size counts this one too, as they share objects. */
  shared_with?: string;
}

/** The last GPU cell of a notebook: where it ran, how long, and what moved for it. */
export interface ICellRun {
  cell_id: string;
  gpu_class: string;
  device: string;
  simulated: boolean;
  seconds: number;
  moved_bytes: number;
  moved_seconds: number;
  ended: string;
}

/** Which cells of a notebook run on the GPU: those that use a GPU library, all, or only `%%gpu`. */
export type Which = 'auto' | 'all' | 'none';

export interface INotebookState {
  cells: Which;
  /** What `%gpu config` set: kept in the notebook's file. */
  kept: { [name: string]: string };
  phase: Phase;
  lease_id: string | null;
  variables: { [name: string]: IVariable };
  /** What there is to say of files that are mirrored on the GPU. */
  files?: string[];
  last_cell: Partial<ICellRun>;
}
