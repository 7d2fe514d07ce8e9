// The rows of the table of variables, and their order.

import type { INotebookState, IVariable } from './wire';

export interface IRow extends IVariable {
  name: string;
}

export type SortKey = 'name' | 'place' | 'size';

/** Variables as rows; modules only where something is wrong with them. */
export function rows(variables: INotebookState['variables']): IRow[] {
  return Object.entries(variables)
    .map(([name, each]) => ({ name, ...each }))
    .filter(row => row.type !== 'module' || row.blocker);
}

/** Sorted by one column, then by name. */
export function sorted(found: readonly IRow[], key: SortKey, down: boolean): IRow[] {
  const sign = down ? -1 : 1;
  return [...found].sort((a, b) => {
    const first =
      key === 'size' ? (a.size ?? -1) - (b.size ?? -1) : a[key].localeCompare(b[key]);
    return first === 0 ? a.name.localeCompare(b.name) : sign * first;
  });
}
