// What a notebook's GPUs were before, and how each ended.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { day, hour } from './time';
import type { ILease } from './wire';
import { here } from './words';

/** This notebook's past leases; all of the person's where it had none. */
export function Past(props: {
  found: readonly ILease[];
  kernel: string | null;
  trans: TranslationBundle;
}): JSX.Element {
  const { kernel, trans } = props;
  const own = props.found.filter(
    lease => kernel !== null && lease.kernel_id === kernel
  );
  const found = own.length ? own : props.found;
  return (
    <section>
      <h3>{own.length ? trans.__('History of this notebook') : trans.__('History')}</h3>
      {found.length === 0 && (
        <p className="gpulease-quiet">{trans.__('Nothing yet.')}</p>
      )}
      <ul className="gpulease-past">
        {found.slice(0, 8).map(lease => (
          <li key={lease.id}>
            <time dateTime={lease.end?.at}>{when(lease)}</time>{' '}
            {lease.end && here(lease.end.sentence, Date.parse(lease.end.at))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function when(lease: ILease): string {
  const at = lease.end?.at ?? lease.created;
  return `${day(at)}, ${hour(at)}:`;
}
