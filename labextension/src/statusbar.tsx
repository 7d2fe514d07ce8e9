// The lease in Lab's status bar.

import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from './actions';
import { Sparkline } from './sparkline';
import { available, here, memoryInUse, shortWithGPU } from './words';

export class StatusItem extends ReactWidget {
  constructor(
    private readonly actions: Actions,
    private readonly open: () => void
  ) {
    super();
    this.addClass('gpulease-status');
  }

  render(): JSX.Element {
    const { leases } = this.actions;
    return (
      <UseSignal signal={leases.changed}>
        {() => <UseSignal signal={leases.tick}>{() => this.item()}</UseSignal>}
      </UseSignal>
    );
  }

  private item(): JSX.Element {
    const { leases, trans } = this.actions;
    const lease = this.actions.lease();
    const said =
      lease === null
        ? ({ text: this.nothing(), level: 'none' } as const)
        : shortWithGPU(lease, leases.classes, leases.now(), trans);
    const memory = lease === null ? null : memoryInUse(lease, trans);
    const title =
      lease === null ? '' : here(`${lease.sentence} ${lease.next_step}`, leases.now());
    return (
      <>
        <button
          type="button"
          className={`gpulease-status-item gpulease-${said.level}`}
          title={title || trans.__('Open the GPU panel')}
          onClick={this.open}
        >
          <span className="gpulease-dot" aria-hidden="true" />
          <span className="gpulease-status-text">
            {leases.up ? said.text : trans.__('%1 (reconnecting)', said.text)}
          </span>
          {lease !== null && lease.utilisation !== null && (
            <Sparkline lease={lease} now={leases.now()} trans={trans} />
          )}
          {memory !== null && <span className="gpulease-use">· {memory.text}</span>}
        </button>
        {/* Read out when it changes, which a countdown does not make it do. */}
        <span className="gpulease-unseen" role="status">
          {lease === null ? '' : here(lease.sentence, leases.now())}
        </span>
      </>
    );
  }

  private nothing(): string {
    const { leases, trans } = this.actions;
    const [first] = leases.classes;
    return first === undefined
      ? trans.__('No GPU')
      : trans.__('No GPU · %1', available(first, leases.now(), trans));
  }
}
