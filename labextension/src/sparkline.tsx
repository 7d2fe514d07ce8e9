// How busy a lease's device was in the last minutes.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { size } from './time';
import type { ILease } from './wire';

const POINTS = 40;
const WIDTH = 40;
const HEIGHT = 12;

/** Past use of each lease, 0 to 1, one point an event; kept for as long as the page lives. */
const past = new Map<string, { version: number; points: number[] }>();

export function history(lease: ILease): readonly number[] {
  const known = past.get(lease.id) ?? { version: -1, points: [] };
  if (lease.version !== known.version && lease.utilisation !== null) {
    known.version = lease.version;
    known.points = [...known.points, lease.utilisation].slice(-POINTS);
    past.set(lease.id, known);
  }
  return known.points;
}

export function Sparkline(props: {
  lease: ILease;
  trans: TranslationBundle;
}): JSX.Element {
  const { lease, trans } = props;
  const points = history(lease);
  const use = Math.round((lease.utilisation ?? 0) * 100);
  const memory = lease.devices.reduce((sum, each) => sum + each.memory, 0);
  const used =
    typeof lease.memory_used === 'number'
      ? trans.__('%1 of %2 GPU memory', size(lease.memory_used), size(memory))
      : '';
  const line = points
    .map((point, n) => {
      const x = WIDTH - (points.length - 1 - n) * (WIDTH / (POINTS - 1));
      return `${x.toFixed(1)},${(HEIGHT - 1 - point * (HEIGHT - 2)).toFixed(1)}`;
    })
    .join(' ');
  return (
    <>
      <svg className="gpulease-spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
        <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        <polyline points={line} />
      </svg>
      <span className="gpulease-use">
        {trans.__('%1 %', use)}
        {used && ` · ${used}`}
      </span>
    </>
  );
}
