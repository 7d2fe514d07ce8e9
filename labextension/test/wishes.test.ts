import assert from 'node:assert/strict';
import { test } from 'node:test';

import { better, isLess, isNews, wished, wishes } from '../src/wishes';
import type { IGPUClass, ILease } from '../src/wire';

/** Lab's translator without a catalogue. */
const words = {
  __: (text: string, ...args: unknown[]) =>
    text.replace(/%(\d)/g, (_, n) => String(args[n - 1])),
  _n: (one: string, many: string, n: number, ...args: unknown[]) =>
    (n === 1 ? one : many).replace(/%(\d)/g, (_, at) => String(args[at - 1]))
};

const T4: IGPUClass = {
  name: 't4',
  title: 'T4',
  memory: 16e9,
  simulated: false,
  total: 4,
  free: 1,
  queued: 0
};

function told(gpuClass: IGPUClass): string[] {
  return wishes(gpuClass).map(wish => wished(wish, gpuClass, 0, words));
}

test('a class of whole GPUs is offered with each number up to four', () => {
  assert.deepEqual(told(T4), ['Request T4 · 1 of 4 available']);
  const several = wishes({ ...T4, max_count: 8 });
  assert.deepEqual(
    several.map(wish => wish.count),
    [1, 2, 3, 4]
  );
  assert.equal(told({ ...T4, max_count: 2 })[1], 'Request 2 × T4 · 1 of 4 available');
});

test('a part of a card says how much, and is offered with each of its steps', () => {
  const part = { ...T4, percent: 70, steps: [40, 20] };
  assert.deepEqual(told(part), [
    'Request T4, 70% of a card · 1 of 4 available',
    'Request T4, 70% of a card, or 40% when others need some · 1 of 4 available',
    'Request T4, 70% of a card, or 20% when others need some · 1 of 4 available'
  ]);
  assert.deepEqual(
    wishes(part).map(wish => wish.at_least),
    [undefined, 40, 20]
  );
});

test('the whole card of a divided pool is told as a card', () => {
  assert.deepEqual(told({ ...T4, percent: 100, steps: [] }), [
    'Request T4 · 1 of 4 available'
  ]);
});

test('what is free of a wish is news once, and again where it is other', () => {
  const four = { gpu_class: 't4', title: 'T4', count: 4 };
  const small = { asked_count: 4, upgrade: null } as ILease;
  const free = { ...small, upgrade: four };
  assert.equal(isNews(null, small), false);
  assert.equal(isNews(small, free), true);
  assert.equal(isNews(free, { ...free, upgrade: { ...four } }), false);
  assert.equal(isNews(free, { ...free, upgrade: { ...four, count: 3 } }), true);
  assert.equal(isNews(free, small), false);
  assert.equal(better(four, words), '4 × T4');
  assert.equal(better({ ...four, count: 1, percent: 70 }, words), 'T4, 70% of a card');
});

test('a lease is less than its wish by its class, its number or its part of a card', () => {
  const whole = { asked_class: '', asked_count: 0, asked_percent: 0 } as ILease;
  assert.equal(isLess(whole), false);
  assert.equal(isLess({} as ILease), false);
  assert.equal(isLess({ ...whole, asked_class: 'a100' }), true);
  assert.equal(isLess({ ...whole, asked_count: 4 }), true);
  assert.equal(isLess({ ...whole, asked_percent: 70 }), true);
});
