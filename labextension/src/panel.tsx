// The side panel "GPU": the lease, what is on offer, this notebook's variables, what was before.

import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Actions } from './actions';
import { Budgets } from './budgets';
import { Cells } from './cells';
import type { INotebooks } from './notebooks';
import { Past } from './past';
import { Sparkline } from './sparkline';
import { hour } from './time';
import { Reservations } from './reservations';
import { better } from './wishes';
import type { ILease, IProject, IReservation } from './wire';
import { Variables } from './variables';
import {
  available,
  ending,
  gpuName,
  here,
  keepFor,
  memoryInUse,
  priced,
  shared,
  short
} from './words';

/** How old a visible panel's history, reservations and budgets become (ms). */
const RELOAD = 300_000;

export class GPUPanel extends ReactWidget {
  constructor(
    private readonly actions: Actions,
    private readonly notebooks: INotebooks
  ) {
    super();
    this.addClass('gpulease-panel');
    const { leases } = actions;
    leases.changed.connect(this.renew, this);
    leases.tick.connect(this.renew, this);
    notebooks.changed.connect(this.renew, this);
    leases.moved.connect((_, { after }) => {
      if (after.state === 'ended' && this.isVisible) {
        this.load();
      }
    });
  }

  protected onBeforeShow(): void {
    this.load();
    this.update();
  }

  /** A hidden panel costs nothing. */
  private renew(): void {
    if (!this.isVisible) {
      return;
    }
    if (Date.now() - this.loaded > RELOAD) {
      this.load();
    }
    this.update();
  }

  /** Ask for what no event tells. */
  private load(): void {
    this.loaded = Date.now();
    this.actions.leases.api.history().then(
      found => {
        this.past = found.filter(lease => lease.state === 'ended');
        this.renew();
      },
      () => undefined // no hub: there is no history
    );
    this.actions.leases.api.reservations().then(
      found => {
        this.reserved = found;
        this.renew();
      },
      () => undefined // nor a reservation
    );
    this.actions.leases.api.projects().then(
      found => {
        this.projects = found;
        this.renew();
      },
      () => undefined // nor a budget
    );
  }

  render(): JSX.Element {
    const { trans } = this.actions;
    const panel = this.notebooks.current;
    const state = this.actions.link()?.state ?? null;
    return (
      <div className="gpulease-panel-content">
        <LeaseSection actions={this.actions} />
        <Reservations
          found={this.reserved}
          now={this.actions.leases.now()}
          trans={trans}
        />
        <Budgets found={this.projects} trans={trans} />
        <Offer actions={this.actions} />
        <section>
          <h3>{trans.__('Variables')}</h3>
          {panel === null || state === null ? (
            <p className="gpulease-quiet">
              {trans.__('Open a notebook to see where its variables are.')}
            </p>
          ) : (
            <Variables state={state} trans={trans} />
          )}
        </section>
        <Files said={state?.files ?? []} trans={trans} />
        <Past
          found={this.past ?? this.actions.leases.ended}
          kernel={this.actions.link()?.kernel?.id ?? null}
          trans={trans}
        />
        <Permission trans={trans} />
        <Further actions={this.actions} />
      </div>
    );
  }

  private loaded = 0;
  private past: readonly ILease[] | null = null;
  private reserved: readonly IReservation[] = [];
  private projects: readonly IProject[] = [];
}

function LeaseSection({ actions }: { actions: Actions }): JSX.Element {
  const { leases, trans } = actions;
  const lease = actions.lease();
  const now = leases.now();
  const said = short(lease, leases.classes, now, trans);
  const holds = lease?.state === 'active' || lease?.state === 'warned';
  const others = holds
    ? (leases.classes.find(each => each.name === lease.gpu_class)?.queued ?? 0)
    : 0;
  return (
    <section className={`gpulease-${said.level}`} aria-label={trans.__('Your GPU')}>
      <h3>
        <span className="gpulease-dot" aria-hidden="true" />
        {lease === null ? trans.__('No GPU') : gpuName(lease, leases.classes, trans)}
      </h3>
      {!leases.up && <p role="status">{trans.__('Connection lost. Reconnecting…')}</p>}
      {lease === null ? (
        <p>{trans.__('Request a GPU, or run a %%%%gpu cell.')}</p>
      ) : (
        <LeaseFacts lease={lease} now={now} trans={trans} />
      )}
      {others > 0 && (
        <p>
          {trans._n(
            '%1 person waits for a GPU like yours. Release it when you are done.',
            '%1 people wait for a GPU like yours. Release it when you are done.',
            others,
            others
          )}
        </p>
      )}
      <div className="gpulease-actions">
        {lease === null && (
          <Action text={trans.__('Request GPU')} accent act={() => actions.request()} />
        )}
        {lease?.upgrade && (
          <Action
            text={trans.__('Move to %1', better(lease.upgrade, trans))}
            accent
            act={() => actions.upgrade()}
          />
        )}
        {lease?.keep.allowed && (
          <Action
            text={keepFor(lease.keep, trans)}
            accent={lease.state === 'warned'}
            act={() => actions.keep()}
          />
        )}
        {lease !== null && lease.state !== 'draining' && (
          <Action
            text={
              lease.state === 'queued' || lease.state === 'starting'
                ? trans.__('Cancel the request')
                : trans.__('Release GPU')
            }
            act={() => actions.giveBack()}
          />
        )}
      </div>
      <WhichCells actions={actions} />
    </section>
  );
}

function WhichCells({ actions }: { actions: Actions }): JSX.Element | null {
  const { trans } = actions;
  const link = actions.link();
  const cells = link?.state?.cells;
  if (!link || cells === undefined) {
    return null;
  }
  return (
    <>
      <Cells cells={cells} choose={which => link.choose(which)} trans={trans} />
      <div className="gpulease-actions">
        <Action
          text={trans.__('Run in background')}
          act={() => actions.runInBackground()}
        />
      </div>
    </>
  );
}

function LeaseFacts(props: {
  lease: ILease;
  now: number;
  trans: TranslationBundle;
}): JSX.Element {
  const { lease, now, trans } = props;
  const next = ending(lease, now, trans);
  const memory = memoryInUse(lease, trans);
  return (
    <>
      <p>{here(lease.sentence, now)}</p>
      {lease.next_step && (
        <p className="gpulease-quiet">{here(lease.next_step, now)}</p>
      )}
      <dl>
        {next !== null && (
          <Fact
            name={next[0]}
            value={trans.__('%1 (%2)', next[1], hour(lease.ends_at!))}
          />
        )}
        {lease.utilisation !== null && (
          <Fact
            name={trans.__('GPU use')}
            value={<Sparkline lease={lease} now={now} trans={trans} />}
          />
        )}
        {memory !== null && (
          <Fact
            name={trans.__('GPU memory')}
            value={
              <>
                <progress
                  className="gpulease-bar"
                  max={1}
                  value={memory.share}
                  aria-label={trans.__('GPU memory')}
                />{' '}
                {memory.text}
              </>
            }
          />
        )}
        {typeof lease.busy_share === 'number' && (
          <Fact
            name={trans.__('In use')}
            value={trans.__('%1% of the time', Math.round(lease.busy_share * 100))}
          />
        )}
      </dl>
    </>
  );
}

function Fact(props: { name: string; value: React.ReactNode }): JSX.Element {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{props.value}</dd>
    </div>
  );
}

function Action(props: {
  text: string;
  accent?: boolean;
  act: () => Promise<void>;
}): JSX.Element {
  const [busy, setBusy] = React.useState(false);
  return (
    <button
      type="button"
      className={`jp-mod-styled ${props.accent ? 'jp-mod-accept' : ''}`}
      disabled={busy}
      onClick={() => {
        setBusy(true);
        props.act().then(
          () => setBusy(false),
          () => setBusy(false)
        );
      }}
    >
      {props.text}
    </button>
  );
}

function Offer({ actions }: { actions: Actions }): JSX.Element {
  const { leases, trans } = actions;
  return (
    <section>
      <h3>{trans.__('GPUs of this hub')}</h3>
      <ul className="gpulease-offer">
        {leases.classes.map(each => (
          <li key={each.name}>
            <b>{each.title}</b>
            <span>
              {available(each, leases.now(), trans) +
                shared(each, leases.classes, trans) +
                priced(each, trans)}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What `%gpu` says of files, where they are mirrored. */
function Files(props: {
  said: readonly string[];
  trans: TranslationBundle;
}): JSX.Element | null {
  if (props.said.length === 0) {
    return null;
  }
  return (
    <section>
      <h3>{props.trans.__('Files')}</h3>
      {props.said.map(line => (
        <p key={line}>{line.replace(/^Files: /, '')}</p>
      ))}
    </section>
  );
}

/** Where to go from here; nowhere without a hub. */
function Further({ actions }: { actions: Actions }): JSX.Element | null {
  const { leases, trans } = actions;
  if (leases.page === '') {
    return null;
  }
  const links = [
    [leases.page, trans.__('GPU page of the hub')],
    [leases.help, trans.__('GPU help')]
  ];
  return (
    <section>
      <ul className="gpulease-links">
        {links.map(([address, text]) => (
          <li key={address}>
            <a href={address} target="_blank" rel="noopener noreferrer">
              {text}
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Browsers ask for leave only after a click of the person. */
function Permission({ trans }: { trans: TranslationBundle }): JSX.Element | null {
  const supported = 'Notification' in window;
  const [asked, setAsked] = React.useState(
    supported ? Notification.permission : 'denied'
  );
  if (asked !== 'default') {
    return null;
  }
  return (
    <section>
      <p className="gpulease-quiet">
        {trans.__('Get browser notifications while this tab is hidden:')}
      </p>
      <div className="gpulease-actions">
        <Action
          text={trans.__('Allow notifications')}
          act={async () => setAsked(await Notification.requestPermission())}
        />
      </div>
    </section>
  );
}
