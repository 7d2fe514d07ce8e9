// What is left of the budgets that a person's leases are charged to.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { day } from './time';
import type { IProject } from './wire';

/** What the person may still spend. */
export function Budgets(props: {
  found: readonly IProject[];
  trans: TranslationBundle;
}): JSX.Element | null {
  const { trans } = props;
  const found = props.found.filter(each => each.budget !== null);
  if (found.length === 0) {
    return null;
  }
  return (
    <section>
      <h3>{trans.__('Budget left')}</h3>
      <ul className="gpulease-past">
        {found.map(({ name, title, budget }) => (
          <li key={name}>
            <b>{title || name}</b>:{' '}
            {trans.__(
              '%1 of %2 GPU-hours, until %3',
              round(budget!.left),
              round(budget!.of),
              day(budget!.until)
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function round(hours: number): number {
  const digits = Math.abs(hours) < 1 ? 100 : 10; // a quarter of an hour is not none
  return Math.round(hours * digits) / digits;
}
