// What is reserved for the person, now or next.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IReserved, upcoming } from './reserved';
import { day, hour, roughly, until } from './time';
import type { IReservation } from './wire';

export function Reservations(props: {
  found: readonly IReservation[];
  now: number;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { now, trans } = props;
  const found = upcoming(props.found, now);
  if (found.length === 0) {
    return null;
  }
  return (
    <section>
      <h3>{trans.__('Reserved for you')}</h3>
      <ul className="gpulease-past">
        {found.map(each => (
          <li key={each.key}>
            <b>{each.group}</b>: {each.seats} × {each.gpuClass},{' '}
            <time dateTime={each.start}>{when(each, now, trans)}</time>
            {each.image && (
              <div className="gpulease-quiet">{trans.__('Image: %1', each.image)}</div>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function when(window: IReserved, now: number, trans: TranslationBundle): string {
  const left = until(window.start, now) ?? 0;
  if (left <= 0) {
    return trans.__('now, until %1', hour(window.end_for_you));
  }
  return trans.__(
    '%1, %2 to %3 (in %4)',
    day(window.start, true),
    hour(window.start),
    hour(window.end_for_you),
    roughly(left)
  );
}
