// What a GPU's state is, why, and what comes next and when: as long as the dialog is open.

import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ILeases } from './leases';
import { second } from './time';
import type { ILease } from './wire';
import { ending, here } from './words';

export class Why extends ReactWidget {
  constructor(
    private readonly lease: () => ILease | null,
    private readonly leases: ILeases,
    private readonly trans: TranslationBundle
  ) {
    super();
  }

  render(): JSX.Element {
    return <UseSignal signal={this.leases.tick}>{() => this.words()}</UseSignal>;
  }

  private words(): JSX.Element {
    const { trans } = this;
    const [lease, now] = [this.lease(), this.leases.now()];
    if (lease === null) {
      return <p>{trans.__('You have no GPU. Request one, or run a %%%%gpu cell.')}</p>;
    }
    const next = ending(lease, now, trans);
    return (
      <>
        <p>{here(lease.sentence, now)}</p>
        {lease.next_step && <p>{here(lease.next_step, now)}</p>}
        {next !== null && (
          <p>{trans.__('%1 %2 (%3).', next[0], next[1], second(lease.ends_at!))}</p>
        )}
      </>
    );
  }
}
