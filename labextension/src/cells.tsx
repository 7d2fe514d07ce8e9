// Which cells of a notebook run on the GPU: one choice.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { Which } from './wire';

export function Cells(props: {
  cells: Which;
  choose: (which: Which) => void;
  trans: TranslationBundle;
}): JSX.Element {
  const { cells, choose, trans } = props;
  const choices = [
    ['none', trans.__('Marked cells'), trans.__('Those that begin with %%%%gpu')],
    ['auto', trans.__('Automatic'), trans.__('Those that use a GPU library')],
    ['all', trans.__('All'), '']
  ] as const;
  return (
    <fieldset className="gpulease-cells">
      <legend>{trans.__('Cells that run on the GPU')}</legend>
      {choices.map(([which, text, about]) => (
        <label key={which} className="gpulease-check" title={about}>
          <input
            type="radio"
            name="gpulease-cells"
            checked={cells === which}
            onChange={() => choose(which)}
          />
          {text}
        </label>
      ))}
    </fieldset>
  );
}
