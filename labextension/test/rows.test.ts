import assert from 'node:assert/strict';
import { test } from 'node:test';

import { rows, sorted } from '../src/rows';
import { upcoming } from '../src/reserved';
import type { IReservation, IVariable } from '../src/wire';

function variable(more: Partial<IVariable> = {}): IVariable {
  return { type: 'int', place: 'home', size: 1, verified: true, blocker: '', ...more };
}

const GIVEN = {
  b: variable({ size: 10 }),
  a: variable({ size: 10, place: 'gpu' }),
  c: variable({ size: null, place: 'both' }),
  np: variable({ type: 'module' }),
  broken: variable({ type: 'module', blocker: 'cannot travel', size: 5 })
};

const names = (key: 'name' | 'place' | 'size', down: boolean) =>
  sorted(rows(GIVEN), key, down).map(row => row.name);

test('modules are left out, unless something is wrong with one', () => {
  assert.deepEqual(names('name', false), ['a', 'b', 'broken', 'c']);
});

test('the largest first, equal ones by name, unknown sizes last', () => {
  assert.deepEqual(names('size', true), ['a', 'b', 'broken', 'c']);
  assert.deepEqual(names('size', false), ['c', 'broken', 'a', 'b']);
});

test('what is reserved: the soonest first, nothing cancelled, over or of others', () => {
  const window = (start: string, end: string) =>
    ({ start, end, end_for_you: end, state: 'coming', seats: 4, claimed: 0 }) as const;
  const of = (id: string, more: Partial<IReservation>): IReservation => ({
    id,
    group: id,
    gpu_class: 't4',
    image: `hub/${id}:1`,
    cancelled: false,
    mine: true,
    windows: [],
    ...more
  });
  const found = upcoming(
    [
      of('late', { windows: [window('2030-01-03T10:00:00Z', '2030-01-03T12:00:00Z')] }),
      of('open', { windows: [window('2030-01-01T10:00:00Z', '2030-01-01T12:00:00Z')] }),
      of('over', { windows: [window('2029-01-01T10:00:00Z', '2029-01-01T12:00:00Z')] }),
      of('theirs', {
        mine: false,
        windows: [window('2030-01-01T10:00:00Z', '2030-01-01T12:00:00Z')]
      }),
      of('off', {
        cancelled: true,
        windows: [window('2030-01-02T10:00:00Z', '2030-01-02T12:00:00Z')]
      })
    ],
    Date.parse('2030-01-01T11:00:00Z')
  );
  assert.deepEqual(
    found.map(each => [each.group, each.image]),
    [
      ['open', 'hub/open:1'],
      ['late', 'hub/late:1']
    ]
  );
});

test('by place, both ways', () => {
  assert.deepEqual(names('place', false), ['c', 'a', 'b', 'broken']);
  assert.deepEqual(names('name', true), ['c', 'broken', 'b', 'a']);
});
