// How busy a lease's device was in the last minutes.  The panel has its memory beside it.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { history, POINTS } from './use';
import type { ILease } from './wire';

const WIDTH = 40;
const HEIGHT = 12;

export function Sparkline(props: {
  lease: ILease;
  now: number;
  trans: TranslationBundle;
}): JSX.Element {
  const { lease, trans } = props;
  const points = history(lease, props.now);
  const use = Math.round((lease.utilisation ?? 0) * 100);
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
      <span className="gpulease-use">{trans.__('%1%', use)}</span>
    </>
  );
}
