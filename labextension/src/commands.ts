// The commands: in the palette, in the toolbar's menu, and for a person's own shortcuts.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import type { Actions } from './actions';
import type { IWish } from './api';
import { better, wished } from './wishes';
import { keepFor } from './words';

export const CommandIDs = {
  request: 'gpulease:request',
  upgrade: 'gpulease:upgrade',
  keep: 'gpulease:keep',
  giveBack: 'gpulease:return',
  runMarked: 'gpulease:run-marked',
  runAuto: 'gpulease:run-auto',
  runOnGPU: 'gpulease:run-on-gpu',
  background: 'gpulease:run-in-background',
  why: 'gpulease:why',
  hours: 'gpulease:hours',
  panel: 'gpulease:open-panel',
  page: 'gpulease:open-page',
  help: 'gpulease:help',
  tour: 'gpulease:tour',
  tutorial: 'gpulease:tutorial'
} as const;

export function addCommands(
  app: JupyterFrontEnd,
  actions: Actions,
  palette: ICommandPalette | null
): void {
  addLeaseCommands(app, actions);
  addNotebookCommands(app, actions);
  const category = actions.trans.__('GPU');
  const elsewhere = ['hours', 'panel', 'tour', 'tutorial']; // in a menu, or added where they are
  for (const [name, command] of Object.entries(CommandIDs)) {
    if (!elsewhere.includes(name)) {
      palette?.addItem({ command, category });
    }
  }
}

function addLeaseCommands(app: JupyterFrontEnd, actions: Actions): void {
  const { leases, trans } = actions;
  const { commands } = app;
  commands.addCommand(CommandIDs.request, {
    label: args => {
      const wish = args as IWish;
      const found = leases.classes.find(each => each.name === wish.gpu_class);
      return found === undefined
        ? trans.__('Request GPU')
        : wished(wish, found, leases.now(), trans);
    },
    isEnabled: () => actions.lease() === null && leases.up,
    execute: args => {
      // Lab adds members of its own.
      const { gpu_class, count, at_least } = args as IWish;
      return actions.request({ gpu_class, count, at_least });
    }
  });
  commands.addCommand(CommandIDs.upgrade, {
    label: () => {
      const free = actions.lease()?.upgrade;
      return free
        ? trans.__('Move to %1', better(free, trans))
        : trans.__('Move to what you requested');
    },
    isVisible: () => Boolean(actions.lease()?.upgrade),
    execute: () => actions.upgrade()
  });
  commands.addCommand(CommandIDs.keep, {
    label: () => {
      const keep = actions.lease()?.keep;
      return keep?.allowed ? keepFor(keep, trans) : trans.__('Keep');
    },
    caption: () => actions.lease()?.keep.reason ?? '',
    isEnabled: () => actions.lease()?.keep.allowed ?? false,
    execute: () => actions.keep()
  });
  commands.addCommand(CommandIDs.giveBack, {
    label: () =>
      ['queued', 'starting'].includes(actions.lease()?.state ?? '')
        ? trans.__('Cancel the request')
        : trans.__('Release GPU'),
    isEnabled: () => actions.lease() !== null && actions.lease()?.state !== 'draining',
    execute: () => actions.giveBack()
  });
  commands.addCommand(CommandIDs.why, {
    label: trans.__('Why? What comes next?'),
    execute: () => actions.why()
  });
  commands.addCommand(CommandIDs.page, {
    label: trans.__('Open the GPU page of the hub'),
    isVisible: () => leases.page !== '',
    execute: () => void window.open(leases.page, '_blank', 'noopener')
  });
  commands.addCommand(CommandIDs.help, {
    label: trans.__('GPU help'),
    isVisible: () => leases.page !== '',
    execute: () => void window.open(leases.help, '_blank', 'noopener')
  });
}

function addNotebookCommands(app: JupyterFrontEnd, actions: Actions): void {
  const { leases, trans } = actions;
  const { commands } = app;
  const cells = [
    [CommandIDs.runMarked, 'none', trans.__('GPU cells: those marked with %%%%gpu')],
    [CommandIDs.runAuto, 'auto', trans.__('GPU cells: those that use a GPU library')],
    [CommandIDs.runOnGPU, 'all', trans.__('GPU cells: all')]
  ] as const;
  for (const [id, which, label] of cells) {
    commands.addCommand(id, {
      label,
      isToggleable: true,
      isToggled: () => actions.link()?.state?.cells === which,
      isEnabled: () => (actions.link()?.state ?? null) !== null,
      execute: () => actions.link()?.choose(which)
    });
  }
  commands.addCommand(CommandIDs.background, {
    label: trans.__('Run in background'),
    caption: trans.__(
      'Runs the whole notebook in a server of its own, also after you have logged out'
    ),
    isEnabled: () => actions.panel !== null && leases.up,
    execute: () => actions.runInBackground()
  });
  commands.addCommand(CommandIDs.hours, {
    label: args => {
      const hours = Number(args['hours']);
      return hours
        ? trans._n('%1 hour', '%1 hours', hours, hours)
        : trans.__('As long as I use it');
    },
    isToggleable: true,
    isToggled: args => actions.options.hours === Number(args['hours']),
    execute: args => actions.options.set('hours', Number(args['hours']))
  });
  const changed = (): void => {
    for (const id of Object.values(CommandIDs)) {
      if (commands.hasCommand(id)) {
        commands.notifyCommandChanged(id);
      }
    }
  };
  leases.changed.connect(changed);
  actions.options.changed.connect(changed);
}
