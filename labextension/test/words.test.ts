import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clock, day, estimate, hour, roughly, size, speak, until } from '../src/time';
import type { IGPUClass, ILease, LeaseState } from '../src/wire';
import {
  available,
  ending,
  here,
  keepFor,
  memoryInUse,
  shared,
  short,
  shortWithGPU
} from '../src/words';

const NOW = Date.parse('2026-01-05T12:00:00+00:00');

/** Lab's translator without a catalogue. */
const words = {
  __: (text: string, ...args: unknown[]) =>
    text.replace(/%(\d)/g, (_, n) => String(args[n - 1])),
  _n: (one: string, many: string, n: number, ...args: unknown[]) =>
    (n === 1 ? one : many).replace(/%(\d)/g, (_, at) => String([n, ...args][at - 1]))
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

function after(seconds: number): string {
  return new Date(NOW + seconds * 1000).toISOString();
}

function lease(state: LeaseState, more: Partial<ILease> = {}): ILease {
  return {
    id: 'a',
    version: 1,
    user: 'ada',
    server: '',
    kernel_id: null,
    gpu_class: 't4',
    count: 1,
    simulated: false,
    state,
    reason: '',
    sentence: '',
    next_step: '',
    position: null,
    expected_start: null,
    created: after(-60),
    active_since: null,
    warned_until: null,
    drain_until: null,
    ends_at: null,
    ends_by: '',
    verdict: 'unknown',
    utilisation: null,
    keep: { allowed: false, left: 0, seconds: 0, reason: '' },
    devices: [],
    end: null,
    ...more
  };
}

const CASES: [ILease | null, string, string][] = [
  [null, 'Request GPU', 'none'],
  [lease('ended'), 'Request GPU', 'none'],
  [lease('queued'), 'Queued', 'waiting'],
  [lease('queued', { position: 3 }), 'Queue: 3', 'waiting'],
  [
    lease('queued', { position: 3, expected_start: after(130) }),
    'Queue: 3 · 2 min',
    'waiting'
  ],
  [lease('starting'), 'Starting', 'waiting'],
  [
    lease('starting', { reason: 'cluster_queue' }),
    'Waiting in the cluster queue',
    'waiting'
  ],
  [lease('starting', { reason: 'pulling' }), 'Starting: downloading image', 'waiting'],
  [lease('active'), 'T4', 'good'],
  [
    lease('active', { ends_at: after(38 * 60), ends_by: 'exam' }),
    'T4 · 38 min left',
    'good'
  ],
  [
    lease('active', { ends_at: after(7.9 * 3600), ends_by: 'hard_limit' }),
    'T4 · 8 h left',
    'good'
  ],
  [
    lease('active', { ends_at: after(45), ends_by: 'idle_warning' }),
    'T4 · idle warning in 0:45',
    'good'
  ],
  [lease('active', { count: 2, simulated: true }), '2 × T4 (simulated)', 'good'],
  [
    lease('warned', { reason: 'idle', ends_at: after(45) }),
    'Idle: released in 0:45',
    'urgent'
  ],
  [
    lease('warned', { reason: 'preempted', ends_at: after(45) }),
    'Released in 0:45',
    'urgent'
  ],
  [lease('draining'), 'Saving variables …', 'urgent']
];

for (const [given, text, level] of CASES) {
  test(`${given?.state ?? 'no lease'} is called "${text}"`, () => {
    const said = short(given, [T4], NOW, words);
    assert.deepEqual([said.text, said.level], [text, level]);
  });
}

test('a countdown never goes below zero and never shows 60 seconds', () => {
  assert.equal(clock(-3), '0:00');
  assert.equal(clock(59.2), '1:00');
  assert.equal(clock(605), '10:05');
  assert.equal(clock(2 * 3600), '2 h');
});

test('a button has room for every time left', () => {
  const named = lease('active', {
    ends_at: after(600),
    gpu_class: 'a-class-of-many-words'
  });
  for (const ends_by of ['exam', 'idle_warning', 'hard_limit'] as const) {
    const said = short({ ...named, ends_by }, [], NOW, words);
    assert.ok((said.brief ?? said.text).length < 25);
  }
});

test('Keep says for how long and how often', () => {
  const keep = { allowed: true, left: 3, seconds: 900, reason: '' };
  assert.equal(keepFor(keep, words), 'Keep for 15 min (3 times left)');
  assert.equal(keepFor({ ...keep, left: 1 }, words), 'Keep for 15 min (1 time left)');
});

test('durations and sizes are short', () => {
  assert.equal(roughly(40), '40 s');
  assert.equal(roughly(60), '1 min');
  assert.equal(roughly(90), '90 s');
  assert.equal(roughly(119.7), '2 min');
  assert.equal(roughly(7 * 3600 + 300), '7 h 5 min');
  assert.equal(roughly(51 * 3600), '2 d 3 h');
  assert.equal(estimate(1), '10 s');
  assert.equal(estimate(31), '40 s');
  assert.equal(estimate(64), '1 min');
  assert.equal(estimate(100), '2 min');
  assert.equal(size(812), '812 B');
  assert.equal(size(999_600), '1.0 MB');
  assert.equal(size(34_000_000), '34 MB');
});

test('no time is no countdown', () => {
  assert.equal(until(null, NOW), null);
  assert.equal(until(after(5), NOW), 5);
});

test('what is free is told with who waits', () => {
  assert.equal(available(T4, NOW, words), '1 of 4 available');
  assert.equal(
    available({ ...T4, queued: 2 }, NOW, words),
    '1 of 4 available, 2 waiting'
  );
  assert.equal(
    available({ ...T4, free: 0, reserved: 1 }, NOW, words),
    '0 of 4 available, 1 reserved'
  );
  const one = { ...T4, name: 'one', title: 'One', pool: 'cards' };
  const two = { ...one, name: 'two', title: 'Two' };
  assert.equal(shared(one, [one, two, T4], words), ' · same GPUs as Two');
  assert.equal(shared(T4, [one, two, T4], words), '');
  const full = { ...T4, free: 0, queued: 1, expected_start: after(720) };
  assert.equal(
    available(full, NOW, words),
    '0 of 4 available, 1 waiting, in about 12 min'
  );
});

test('where a machine is added for who asks, that is told', () => {
  const none = { ...T4, free: 0, total: 0, provision: 360, expected_start: after(720) };
  assert.equal(
    available(none, NOW, words),
    '0 of 0 available, a machine is added, usually in 6 min'
  );
  assert.equal(
    available({ ...none, provision: null }, NOW, words),
    '0 of 0 available, in about 12 min'
  );
});

test('an instant is told in the reader\u2019s zone, with its day where that is far', () => {
  process.env.TZ = 'Europe/Berlin';
  speak('de_DE', []);
  const told = (text: string, now: string) => here(text, Date.parse(now));
  assert.equal(
    told('It leaves at 2026-01-05T04:50:41Z.', '2026-01-05T04:50:00Z'),
    'It leaves at 05:50.'
  );
  const midnight = 'until 2026-07-06T00:10:00Z';
  assert.equal(told(midnight, '2026-07-05T23:50:00Z'), 'until 02:10');
  assert.equal(told(midnight, '2026-07-03T23:50:00Z'), 'until 6. Juli, 02:10');
  assert.equal(told('No time here.', '2026-01-05T04:50:00Z'), 'No time here.');
});

test('dates are in the language of Lab, in the variant that the browser has of it', () => {
  process.env.TZ = 'UTC';
  const at = '2026-11-03T17:05:00Z';
  speak('de_DE', ['en-US', 'de-AT']);
  assert.equal(day(at, true), 'Di., 3. Nov.');
  assert.equal(hour(at), '17:05');
  speak('en', ['fr-FR', 'en-GB']);
  assert.equal(day(at), '3 Nov');
  speak('en', ['fr-FR', 'en-US']);
  assert.match(hour(at), /^5:05\sPM$/);
  speak('fr_FR', []);
  assert.equal(day(at), '3 nov.');
});

test('the one time left says what it is of', () => {
  const told = (ends_by: ILease['ends_by']) =>
    ending(lease('active', { ends_at: after(130), ends_by }), NOW, words);
  assert.deepEqual(told('idle_warning'), ['Idle warning in', '2:10']);
  assert.deepEqual(told('hard_limit'), ['Hard limit in', '2:10']);
  assert.equal(ending(lease('active'), NOW, words), null);
});

test('where nothing else tells, it says that it is about a GPU', () => {
  const given = lease('warned', { reason: 'idle', ends_at: after(45) });
  assert.equal(
    shortWithGPU(given, [T4], NOW, words).text,
    'GPU · Idle: released in 0:45'
  );
  assert.equal(shortWithGPU(lease('active'), [T4], NOW, words).text, 'T4');
});

test('memory is said in the GB of cards, and not where nobody knows it', () => {
  const devices = [0, 1].map(n => ({
    uuid: `G${n}`,
    name: 'T4',
    memory: 16 * 2 ** 30,
    simulated: false
  }));
  const held = (memory_used: number | null) =>
    memoryInUse(lease('active', { devices, memory_used }), words);
  assert.deepEqual(held(8 * 2 ** 30), { share: 0.25, text: '8.0 of 32 GB' });
  assert.equal(held(3.25 * 2 ** 30)?.text, '3.3 of 32 GB');
  assert.equal(held(12 * 2 ** 30)?.text, '12 of 32 GB');
  assert.equal(held(0)?.text, '0.0 of 32 GB');
  assert.equal(held(null), null);
});
