// What can be asked for: of each class, so many GPUs, or with how much less one can go on.

import type { IWish } from './api';
import type { IGPUClass, ILease, IUpgrade } from './wire';
import type { IWords } from './words';
import { available, priced } from './words';

/** More GPUs in one request are asked for by a cell or on the GPU page. */
const MOST = 4;

/** What the menu offers of a class. */
export function wishes(each: IGPUClass): IWish[] {
  const counts = Array.from({ length: Math.min(each.max_count ?? 1, MOST) });
  return [
    ...counts.map((_, n) => ({ gpu_class: each.name, count: n + 1 })),
    ...(each.steps ?? []).map(step => ({ gpu_class: each.name, at_least: step }))
  ];
}

/** One of them in words, with what is there. */
export function wished(
  wish: IWish,
  each: IGPUClass,
  now: number,
  words: IWords
): string {
  const { count = 1, at_least } = wish;
  let name = count > 1 ? `${count} × ${each.title}` : each.title;
  if (each.percent !== undefined && each.percent < 100) {
    name = words.__('%1, %2% of a card', name, each.percent);
  }
  const offer = available(each, now, words) + priced(each, words);
  return at_least === undefined
    ? words.__('Request %1 · %2', name, offer)
    : words.__('Request %1, or %2% when others need some · %3', name, at_least, offer);
}

/** What of a lease's wish is free by now. */
export function better({ count, title, percent }: IUpgrade, words: IWords): string {
  if (percent) {
    return words.__('%1, %2% of a card', title, percent);
  }
  return count > 1 ? `${count} × ${title}` : title;
}

/** Whether a lease is less than what was asked for. */
export function isLess(lease: ILease): boolean {
  return Boolean(lease.asked_class || lease.asked_count || lease.asked_percent);
}

/** Whether more of the wish has come free, or other than was said before. */
export function isNews(before: ILease | null, after: ILease): boolean {
  const said = ({ upgrade }: ILease): string => JSON.stringify(upgrade ?? null);
  return Boolean(after.upgrade) && (before === null || said(before) !== said(after));
}
