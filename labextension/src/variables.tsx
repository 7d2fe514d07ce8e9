// The table of a notebook's variables: where each lives, how large, and what keeps it there.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IRow, sorted, SortKey, rows } from './rows';
import { size } from './time';
import type { INotebookState } from './wire';

const PLACES = (trans: TranslationBundle): Record<string, string> => ({
  home: trans.__('Notebook'),
  both: trans.__('Both'),
  gpu: trans.__('GPU'),
  lost: trans.__('Lost'),
  conflicted: trans.__('Changed in both'),
  parked: trans.__('Stored for the next GPU')
});

/** The way out of a place where a value should not stay. */
function wayOut(row: IRow, trans: TranslationBundle): string {
  if (row.blocker) {
    return row.blocker;
  }
  if (row.place === 'conflicted') {
    return trans.__(
      'Choose one: %gpu resolve %1 home, or %gpu resolve %1 gpu',
      row.name
    );
  }
  return row.place === 'lost' ? trans.__('Run the cell again that creates it.') : '';
}

export function Variables(props: {
  state: INotebookState;
  trans: TranslationBundle;
}): JSX.Element {
  const { state, trans } = props;
  const [key, setKey] = React.useState<SortKey>('size');
  const [down, setDown] = React.useState(true);
  const places = PLACES(trans);
  const found = sorted(rows(state.variables), key, down);
  if (found.length === 0) {
    return <p className="gpulease-quiet">{trans.__('No variables yet.')}</p>;
  }
  const heading = (name: SortKey, text: string): JSX.Element => (
    <th aria-sort={key === name ? (down ? 'descending' : 'ascending') : 'none'}>
      <button
        type="button"
        onClick={() => {
          setDown(key === name ? !down : name === 'size');
          setKey(name);
        }}
      >
        {text}
        <span aria-hidden="true">{key === name ? (down ? ' ▾' : ' ▴') : ''}</span>
      </button>
    </th>
  );
  return (
    <table className="gpulease-table">
      <thead>
        <tr>
          {heading('name', trans.__('Name'))}
          {heading('place', trans.__('Where'))}
          {heading('size', trans.__('Size'))}
        </tr>
      </thead>
      <tbody>
        {found.map(row => (
          <React.Fragment key={row.name}>
            <tr className={row.blocker ? 'gpulease-blocked' : ''}>
              <th scope="row" title={row.type}>
                {row.name}
              </th>
              <td>{places[row.place] ?? row.place}</td>
              <td className="gpulease-number">
                {row.shared_with
                  ? trans.__('in %1', row.shared_with)
                  : row.size === null
                    ? ''
                    : size(row.size)}
              </td>
            </tr>
            {wayOut(row, trans) && (
              <tr className="gpulease-why">
                <td colSpan={3}>{wayOut(row, trans)}</td>
              </tr>
            )}
          </React.Fragment>
        ))}
      </tbody>
    </table>
  );
}
