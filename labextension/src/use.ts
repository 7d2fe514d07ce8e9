// How busy a lease's devices were in the last minutes: points in time, kept while the page lives.

import type { ILease } from './wire';

export const POINTS = 40;
/** Between two points (ms): so many of them are the last two minutes. */
const APART = 3000;

const past = new Map<string, { at: number; points: number[] }>();

/** The points of a lease up to `now` (ms), each 0 to 1; a gap in what is known is left out. */
export function history(lease: ILease, now: number): readonly number[] {
  const known = past.get(lease.id);
  if (known !== undefined && now - known.at < APART) {
    return known.points;
  }
  const points = known?.points ?? [];
  if (lease.utilisation === null) {
    return points;
  }
  const kept = { at: now, points: [...points, lease.utilisation].slice(-POINTS) };
  past.set(lease.id, kept);
  return kept.points;
}
