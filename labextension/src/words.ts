// What a lease's state is called where there is little room: status bar, toolbar, titles.
// The whole sentences are the service's (`sentence`, `next_step`).

import { clock, roughly, until } from './time';
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
}

/** The GPU's name: its class, and how many. */
export function gpuName(
  lease: ILease,
  classes: readonly IGPUClass[],
  words: IWords
): string {
  const found = classes.find(each => each.name === lease.gpu_class);
  const title = found?.title || lease.gpu_class;
  const name = lease.count > 1 ? `${lease.count} × ${title}` : title;
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
      const left = until(lease.hard_end, now);
      const text = left === null ? name : words.__('%1 · %2 left', name, roughly(left));
      return { text, level: 'good' };
    }
  }
}

function queued(lease: ILease, now: number, words: IWords): string {
  const wait = until(lease.expected_start, now);
  const place = lease.position;
  if (place === null) {
    return words.__('GPU queued');
  }
  if (wait === null) {
    return words.__('GPU queued, place %1', place);
  }
  return words.__('GPU queued, place %1, about %2', place, roughly(Math.max(5, wait)));
}

function starting(lease: ILease, words: IWords): string {
  switch (lease.reason) {
    case 'pulling':
      return words.__('GPU starting: downloading image');
    case 'scheduling':
      return words.__('GPU starting: waiting for a node');
    case 'starting_container':
      return words.__('GPU starting: starting container');
    case 'connecting':
      return words.__('GPU starting: connecting');
    default:
      return words.__('GPU starting');
  }
}

const IDLE_REASONS = new Set(['idle', 'quiet', 'busy_max', 'no_data', 'unclaimed']);

function warned(lease: ILease, now: number, words: IWords): string {
  const left = until(lease.warned_until, now);
  if (left === null) {
    return words.__('GPU is released soon');
  }
  return IDLE_REASONS.has(lease.reason)
    ? words.__('GPU idle: released in %1', clock(left))
    : words.__('GPU released in %1', clock(left));
}

/** What is free of a class: `1 of 4 available, 3 waiting`. */
export function available(each: IGPUClass, words: IWords): string {
  const free = words.__('%1 of %2 available', each.free, each.total);
  return each.queued
    ? `${free}, ${words._n('%1 waiting', '%1 waiting', each.queued, each.queued)}`
    : free;
}
