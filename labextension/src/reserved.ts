// The next windows of reservations.

import type { IReservation, IWindow } from './wire';

export interface IReserved extends IWindow {
  key: string;
  group: string;
  gpuClass: string;
  image: string;
}

const SHOWN = 3;

/** Windows that are not over, the soonest first. */
export function upcoming(found: readonly IReservation[], now: number): IReserved[] {
  return found
    .filter(each => each.mine && !each.cancelled)
    .flatMap(each =>
      each.windows.map(window => ({
        ...window,
        key: `${each.id} ${window.start}`,
        group: each.group,
        gpuClass: each.gpu_class,
        image: each.image ?? ''
      }))
    )
    .filter(window => Date.parse(window.end_for_you) > now)
    .sort((a, b) => Date.parse(a.start) - Date.parse(b.start))
    .slice(0, SHOWN);
}
