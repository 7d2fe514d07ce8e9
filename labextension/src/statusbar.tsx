// The lease in Lab's status bar.

import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ILeases } from './leases';
import { Sparkline } from './sparkline';
import type { ILease } from './wire';
import { available, short } from './words';

/** What the item shows; hidden where there is nothing to say. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly leases: ILeases,
    private readonly trans: TranslationBundle,
    private readonly lease: () => ILease | null,
    private readonly open: () => void
  ) {
    super();
    this.addClass('gpulease-status');
  }

  render(): JSX.Element {
    return (
      <UseSignal signal={this.leases.changed}>
        {() => <UseSignal signal={this.leases.tick}>{() => this.item()}</UseSignal>}
      </UseSignal>
    );
  }

  private item(): JSX.Element {
    const { leases, trans } = this;
    const lease = this.lease();
    const said = short(lease, leases.classes, leases.now(), trans);
    const text = lease === null ? this.nothing() : said.text;
    const title = lease === null ? '' : `${lease.sentence} ${lease.next_step}`;
    return (
      <button
        type="button"
        className={`gpulease-status-item gpulease-${said.level}`}
        title={title || trans.__('Open the GPU panel')}
        onClick={this.open}
      >
        <span className="gpulease-dot" aria-hidden="true" />
        <span className="gpulease-status-text">
          {leases.up ? text : trans.__('%1 (connecting)', text)}
        </span>
        {lease !== null && lease.utilisation !== null && (
          <Sparkline lease={lease} trans={trans} />
        )}
      </button>
    );
  }

  private nothing(): string {
    const [first] = this.leases.classes;
    return first === undefined
      ? this.trans.__('No GPU')
      : this.trans.__('No GPU · %1', available(first, this.trans));
  }
}
