import assert from 'node:assert/strict';
import { test } from 'node:test';

import { history, POINTS } from '../src/use';
import type { ILease } from '../src/wire';

function used(utilisation: number | null, id = 'a'): ILease {
  return { id, version: 1, utilisation } as ILease;
}

test('use goes on in the picture while nothing else of the lease changes', () => {
  assert.deepEqual(history(used(0.1), 0), [0.1]);
  assert.deepEqual(history(used(0.9), 1000), [0.1], 'a point every 3 s');
  assert.deepEqual(history(used(0.9), 3000), [0.1, 0.9]);
  assert.deepEqual(history(used(null), 6000), [0.1, 0.9], 'nobody knows');
  assert.deepEqual(history(used(0.2), 6500), [0.1, 0.9, 0.2]);
  assert.deepEqual(history(used(0.5, 'b'), 6500), [0.5]);
  for (let n = 0; n < 100; n += 1) {
    history(used(0.3), 10_000 + n * 3000);
  }
  assert.equal(history(used(0.3), 900_000).length, POINTS);
});
