// What a lease's state is called where there is little room: status bar, toolbar, titles.
// The whole sentences are the service's (`sentence`, `next_step`).

import { clock, day, estimate, hour, roughly, until } from './time';
import type { IGPUClass, ILease } from './wire';

/** What this module needs of Lab's translator. */
export interface IWords {
  __(text: string, ...args: unknown[]): string;
  _n(one: string, many: string, n: number, ...args: unknown[]): string;
}

/** How loud a state is: `urgent` asks for something now. */
export type Level = 'none' | 'waiting' | 'good' | 'urgent';

export interface IShort {
  text: string;
  level: Level;
  /** The same without the GPU's name, where a button has no room for both. */
  brief?: string;
}

/** How much of its GPUs' memory a lease holds, `null` where nobody knows; a card's GB are GiB. */
export function memoryInUse(
  lease: ILease,
  words: IWords
): { share: number; text: string } | null {
  const whole = lease.devices.reduce((sum, each) => sum + each.memory, 0);
  if (typeof lease.memory_used !== 'number' || whole === 0) {
    return null;
  }
  const used = lease.memory_used / 2 ** 30;
  const text = words.__(
    '%1 of %2 GB',
    used.toFixed(used < 10 ? 1 : 0),
    (whole / 2 ** 30).toFixed(0)
  );
  return { share: lease.memory_used / whole, text };
}

/** The GPU's name: its class, and how many. */
export function gpuName(
  lease: ILease,
  classes: readonly IGPUClass[],
  words: IWords
): string {
  const found = classes.find(each => each.name === lease.gpu_class);
  const title = found?.title || lease.gpu_class;
  let name = lease.count > 1 ? `${lease.count} × ${title}` : title;
  if (lease.percent) {
    name = words.__('%1, %2% of a card', name, lease.percent);
  }
  return lease.simulated && !/simulated/i.test(name)
    ? words.__('%1 (simulated)', name)
    : name;
}

/** One lease in a few words, with its countdown. */
export function short(
  lease: ILease | null,
  classes: readonly IGPUClass[],
  now: number,
  words: IWords
): IShort {
  if (lease === null || lease.state === 'ended') {
    return { text: words.__('Request GPU'), level: 'none' };
  }
  switch (lease.state) {
    case 'queued':
      return { text: queued(lease, now, words), level: 'waiting' };
    case 'starting':
      return { text: starting(lease, words), level: 'waiting' };
    case 'warned':
      return { text: warned(lease, now, words), level: 'urgent' };
    case 'draining':
      return { text: words.__('Saving variables …'), level: 'urgent' };
    case 'active': {
      const name = gpuName(lease, classes, words);
      const left = until(lease.ends_at, now);
      if (left === null) {
        return { text: name, level: 'good' };
      }
      if (lease.ends_by === 'idle_warning') {
        const text = words.__('%1 · idle warning in %2', name, clock(left));
        return {
          text,
          level: 'good',
          brief: words.__('Idle warning in %1', clock(left))
        };
      }
      const time = roughly(inHours(left));
      return {
        text: words.__('%1 · %2 left', name, time),
        level: 'good',
        brief: words.__('%1 left', time)
      };
    }
  }
}

const HOUR = 3600;

/** Whole hours where minutes do not matter yet: a button has no room for them. */
function inHours(seconds: number): number {
  return seconds < 3 * HOUR ? seconds : Math.round(seconds / HOUR) * HOUR;
}

/** The same where nothing else says that it is about a GPU: in the status bar, in a title. */
export function shortWithGPU(
  lease: ILease,
  classes: readonly IGPUClass[],
  now: number,
  words: IWords
): IShort {
  const { text, level } = short(lease, classes, now, words);
  return { text: level === 'good' ? text : words.__('GPU · %1', text), level };
}

function queued(lease: ILease, now: number, words: IWords): string {
  const wait = until(lease.expected_start, now);
  const place = lease.position;
  if (place === null) {
    return words.__('Queued');
  }
  const where = place === 1 ? words.__('Queue: next') : words.__('Queue: %1', place);
  return wait === null ? where : `${where} · ${estimate(wait)}`;
}

function starting(lease: ILease, words: IWords): string {
  switch (lease.reason) {
    case 'pulling':
      return words.__('Starting: downloading image');
    case 'cluster_queue':
      return words.__('Waiting in the cluster queue');
    case 'scheduling':
      return words.__('Starting: waiting for a node');
    case 'starting_container':
      return words.__('Starting: container');
    case 'connecting':
      return words.__('Starting: connecting');
    default:
      return words.__('Starting');
  }
}

/** What a click on Keep does, and how often that is possible. */
export function keepFor(keep: ILease['keep'], words: IWords): string {
  return words._n(
    'Keep for %2 (%1 time left)',
    'Keep for %2 (%1 times left)',
    keep.left,
    roughly(keep.seconds)
  );
}

export const IDLE_REASONS: ReadonlySet<string> = new Set([
  'idle',
  'quiet',
  'busy_max',
  'no_data',
  'unclaimed'
]);

function warned(lease: ILease, now: number, words: IWords): string {
  const left = until(lease.ends_at, now);
  if (left === null) {
    return words.__('Released soon');
  }
  return IDLE_REASONS.has(lease.reason)
    ? words.__('Idle: released in %1', clock(left))
    : words.__('Released in %1', clock(left));
}

/** What is free of a class: `1 of 4 available`, `0 of 4 available, 3 waiting, in about 12 min`. */
export function available(each: IGPUClass, now: number, words: IWords): string {
  const said = [words.__('%1 of %2 available', each.free, each.total)];
  if (each.reserved) {
    said.push(words.__('%1 reserved', each.reserved));
  }
  if (each.queued) {
    said.push(words._n('%1 waiting', '%1 waiting', each.queued, each.queued));
  }
  if (!each.free && each.provision) {
    said.push(words.__('a machine is added, usually in %1', estimate(each.provision)));
    return said.join(', ');
  }
  const wait = each.free ? null : until(each.expected_start, now);
  if (wait !== null) {
    said.push(words.__('in about %1', estimate(Math.max(60, wait))));
  }
  return said.join(', ');
}

/** With which classes it shares its GPUs, else "": what is free is free once. */
export function shared(
  each: IGPUClass,
  all: readonly IGPUClass[],
  words: IWords
): string {
  const names = all
    .filter(other => other.pool && other.pool === each.pool && other.name !== each.name)
    .map(other => other.title);
  return names.length ? words.__(' · same GPUs as %1', names.join(', ')) : '';
}

/** What an hour takes off a budget, where that is not one GPU-hour; else "". */
export function priced(each: IGPUClass, words: IWords): string {
  return (each.price ?? 1) === 1 ? '' : words.__(' · price %1', each.price);
}

const INSTANT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g;
const DAY = 86_400_000;

/** A sentence of the service's with its instants in the reader's zone, with the day of a far one. */
export function here(sentence: string, now: number): string {
  return sentence.replace(INSTANT, at => {
    const away = Math.abs(Date.parse(at) - now);
    return away < DAY / 2 ? hour(at) : `${day(at)}, ${hour(at)}`;
  });
}

/** What ends a lease next, and in how long: the one time left that is shown of it. */
export function ending(
  lease: ILease,
  now: number,
  words: IWords
): [string, string] | null {
  const left = until(lease.ends_at, now);
  const names = {
    released: words.__('Released in'),
    drained: words.__('Released at the latest in'),
    idle_warning: words.__('Idle warning in'),
    exam: words.__('The exam ends in'),
    seat: words.__('Your seat ends in'),
    reserved: words.__('Needed for a reservation in'),
    hard_limit: words.__('Hard limit in'),
    budget: words.__('GPU-hours used up in')
  };
  return left === null || !lease.ends_by ? null : [names[lease.ends_by], clock(left)];
}
