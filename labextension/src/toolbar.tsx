// The notebook's button: its label is the lease's state, its menu what can be done.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { NotebookPanel } from '@jupyterlab/notebook';
import {
  caretDownEmptyThinIcon,
  MenuSvg,
  ReactWidget
} from '@jupyterlab/ui-components';
import { Menu } from '@lumino/widgets';
import * as React from 'react';

import type { Actions } from './actions';
import { CommandIDs } from './commands';
import type { NotebookLink } from './notebooks';
import { wishes } from './wishes';
import { here, short } from './words';

const HOURS = [0, 1, 2, 4, 8];

export class GPUButton extends ReactWidget {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly actions: Actions,
    private readonly panel: NotebookPanel
  ) {
    super();
    this.addClass('gpulease-toolbar');
    this.hide(); // until the kernel has answered
    void actions.leases.present.then(present => {
      if (present && !this.isDisposed) {
        this.link = actions.link(panel);
        this.link?.changed.connect(this.follow, this);
        actions.leases.changed.connect(this.follow, this);
        actions.leases.tick.connect(this.follow, this);
        this.follow();
      }
    });
  }

  dispose(): void {
    const { leases } = this.actions;
    this.link?.changed.disconnect(this.follow, this);
    leases.changed.disconnect(this.follow, this);
    leases.tick.disconnect(this.follow, this);
    super.dispose();
  }

  render(): JSX.Element {
    const { leases, trans } = this.actions;
    const lease = this.actions.lease(this.panel);
    const said = short(lease, leases.classes, leases.now(), trans);
    const missing = this.link?.missing ?? false;
    const sentence = missing
      ? trans.__('Install gpulease in this kernel’s environment to use a GPU here.')
      : lease === null
        ? trans.__('Get a GPU for this notebook')
        : here(`${lease.sentence} ${lease.next_step}`, leases.now());
    return (
      <div className={`gpulease-button gpulease-${missing ? 'none' : said.level}`}>
        <button
          type="button"
          className="gpulease-button-main jp-ToolbarButtonComponent"
          title={sentence}
          aria-haspopup={lease !== null || undefined}
          disabled={missing || (lease === null && !leases.up)}
          onClick={event => this.pressed(event.currentTarget)}
        >
          <span className="gpulease-dot" aria-hidden="true" />
          <span className="gpulease-button-text">{said.brief ?? said.text}</span>
        </button>
        <button
          type="button"
          className="gpulease-button-menu jp-ToolbarButtonComponent"
          title={trans.__('GPU menu')}
          aria-label={trans.__('GPU menu')}
          aria-haspopup="menu"
          onClick={event => this.openMenu(event.currentTarget)}
        >
          <caretDownEmptyThinIcon.react tag="span" />
        </button>
      </div>
    );
  }

  private follow(): void {
    this.setHidden(!this.link?.python || !this.actions.leases.hub);
    // Also where the toolbar has no room and keeps it in its pop-up.
    this.update();
  }

  private pressed(button: HTMLElement): void {
    if (this.actions.lease(this.panel) === null) {
      void this.actions.request({}, this.panel);
    } else {
      this.openMenu(button);
    }
  }

  private openMenu(button: HTMLElement): void {
    const menu = this.menu();
    const place = button.parentElement!.getBoundingClientRect();
    // Once it is closed: until then the toolbar moves the focus to a button of its own.
    menu.aboutToClose.connect(() => requestAnimationFrame(() => button.focus()));
    menu.open(place.left, place.bottom);
    menu.activateNextItem();
  }

  private menu(): Menu {
    const { commands } = this.app;
    const { leases, trans } = this.actions;
    const menu = new MenuSvg({ commands });
    if (this.actions.lease(this.panel) === null) {
      for (const wish of leases.classes.flatMap(wishes)) {
        menu.addItem({ command: CommandIDs.request, args: { ...wish } });
      }
      const hours = new MenuSvg({ commands });
      hours.title.label = trans.__('For how long');
      HOURS.forEach(each =>
        hours.addItem({ command: CommandIDs.hours, args: { hours: each } })
      );
      menu.addItem({ type: 'submenu', submenu: hours });
    } else {
      menu.addItem({ command: CommandIDs.upgrade });
      menu.addItem({ command: CommandIDs.keep });
      menu.addItem({ command: CommandIDs.giveBack });
    }
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: CommandIDs.runMarked });
    menu.addItem({ command: CommandIDs.runAuto });
    menu.addItem({ command: CommandIDs.runOnGPU });
    menu.addItem({ command: CommandIDs.background });
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: CommandIDs.why });
    menu.addItem({ command: CommandIDs.panel });
    menu.addItem({ command: CommandIDs.page });
    menu.addItem({ command: CommandIDs.help });
    return menu;
  }

  private link: NotebookLink | null = null;
}
