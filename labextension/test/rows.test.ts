import assert from 'node:assert/strict';
import { test } from 'node:test';

import { rows, sorted } from '../src/rows';
import type { IVariable } from '../src/wire';

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

test('by place, both ways', () => {
  assert.deepEqual(names('place', false), ['c', 'a', 'b', 'broken']);
  assert.deepEqual(names('name', true), ['c', 'broken', 'b', 'a']);
});
