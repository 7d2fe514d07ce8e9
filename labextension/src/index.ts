// The plugins of the extension.  Where the server extension is missing each of them does nothing.

import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';

import { Actions } from './actions';
import { addCommands, CommandIDs } from './commands';
import { gpuIcon } from './icon';
import { ILeases, Leases } from './leases';
import { Marks } from './marks';
import { INotebooks, Notebooks } from './notebooks';
import { Notifier } from './notifications';
import { PLUGIN } from './options';
import { StatusItem } from './statusbar';
import { speak } from './time';
import { GPUButton } from './toolbar';

const DOMAIN = 'gpulease';
const PANEL = 'gpulease-panel';

const IActions = new Token<Actions>(
  'gpulease:IActions',
  'What can be done with a GPU.'
);

const leases: JupyterFrontEndPlugin<ILeases> = {
  id: 'gpulease:leases',
  description: 'Follows the GPU leases of this notebook server.',
  autoStart: true,
  optional: [ITranslator],
  provides: ILeases,
  activate: (app: JupyterFrontEnd, translator: ITranslator | null) => {
    const { events, serverSettings } = app.serviceManager;
    const { languageCode } = translator ?? nullTranslator;
    speak(languageCode);
    return new Leases(events, serverSettings, languageCode, app.serviceManager);
  }
};

const notebooks: JupyterFrontEndPlugin<INotebooks> = {
  id: 'gpulease:notebooks',
  description: 'Follows the GPU cells of open notebooks.',
  autoStart: true,
  requires: [INotebookTracker],
  provides: INotebooks,
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker) => new Notebooks(tracker)
};

/** Its settings are the extension's, and place the button in the notebook's toolbar. */
const actions: JupyterFrontEndPlugin<Actions> = {
  id: PLUGIN,
  description: 'Commands and the toolbar button for the GPU of a notebook.',
  autoStart: true,
  requires: [ILeases],
  optional: [
    INotebooks,
    ISettingRegistry,
    ICommandPalette,
    IToolbarWidgetRegistry,
    ITranslator
  ],
  provides: IActions,
  activate: (
    app: JupyterFrontEnd,
    found: ILeases,
    links: INotebooks | null,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null,
    toolbars: IToolbarWidgetRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const acting = new Actions(found, found.options, trans, links);
    toolbars?.addFactory<NotebookPanel>(
      'Notebook',
      'gpulease',
      panel => new GPUButton(app, acting, panel)
    );
    void found.present.then(present => {
      if (present && found.hub) {
        addCommands(app, acting, palette);
      }
    });
    void registry
      ?.load(PLUGIN)
      .then(settings => found.options.take(settings))
      .catch(error => console.warn('gpulease: no settings', error));
    return acting;
  }
};

const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:status-bar',
  description: 'Shows the GPU lease in the status bar.',
  autoStart: true,
  requires: [IActions, IStatusBar],
  activate: (app: JupyterFrontEnd, acting: Actions, bar: IStatusBar) => {
    void acting.leases.present.then(present => {
      if (present && acting.leases.hub) {
        const open = (): void => void app.commands.execute(CommandIDs.panel);
        const item = new StatusItem(acting, open);
        bar.registerStatusItem('gpulease:status', { item, align: 'left', rank: 10 });
      }
    });
  }
};

const notifications: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:notifications',
  description: 'Says when a GPU comes, when it will be released and when it is gone.',
  autoStart: true,
  requires: [IActions],
  activate: (_: JupyterFrontEnd, acting: Actions) => {
    void acting.leases.present.then(present => present && new Notifier(acting));
  }
};

const marks: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:marks',
  description: 'Marks the cells that ran on the GPU.',
  autoStart: true,
  requires: [IActions, INotebooks, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    acting: Actions,
    links: INotebooks,
    tracker: INotebookTracker
  ) => {
    const mark = (panel: NotebookPanel): void => {
      const open = (): void => void app.commands.execute(CommandIDs.panel);
      new Marks(panel, links.of(panel), acting.options, acting.trans, open);
    };
    void acting.leases.present.then(present => {
      if (present) {
        tracker.forEach(mark);
        tracker.widgetAdded.connect((_, panel) => mark(panel));
      }
    });
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:panel',
  description: 'The side panel "GPU".',
  autoStart: true,
  requires: [IActions, INotebooks],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    acting: Actions,
    links: INotebooks,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const { trans } = acting;
    void acting.leases.present.then(async present => {
      if (!present || !acting.leases.hub) {
        return;
      }
      const { GPUPanel } = await import('./panel');
      const widget = new GPUPanel(acting, links);
      widget.id = PANEL;
      widget.title.icon = gpuIcon;
      widget.title.caption = trans.__('GPU');
      widget.node.setAttribute('role', 'region');
      widget.node.setAttribute('aria-label', trans.__('GPU'));
      app.shell.add(widget, 'right', { rank: 600, type: 'GPU' });
      restorer?.add(widget, PANEL);
      app.commands.addCommand(CommandIDs.panel, {
        label: trans.__('Open the GPU panel'),
        execute: () => app.shell.activateById(PANEL)
      });
      palette?.addItem({ command: CommandIDs.panel, category: trans.__('GPU') });
    });
  }
};

/** Loaded when it is wanted: most people see it once. */
const firstUse: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:first-use',
  description: 'A short tour, and a tutorial in the launcher.',
  autoStart: true,
  requires: [IActions, INotebooks],
  optional: [ILauncher, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    acting: Actions,
    links: INotebooks,
    launcher: ILauncher | null,
    palette: ICommandPalette | null
  ) => {
    const { trans } = acting;
    void acting.leases.present.then(async present => {
      if (!present || !acting.leases.hub) {
        return;
      }
      app.commands.addCommand(CommandIDs.tour, {
        label: trans.__('GPU tour'),
        execute: async () => (await import('./tour')).showTour(trans)
      });
      app.commands.addCommand(CommandIDs.tutorial, {
        label: trans.__('GPU tutorial'),
        caption: trans.__('A notebook that shows how to use a GPU here'),
        icon: gpuIcon,
        execute: async () => (await import('./tutorial')).openTutorial(app, trans)
      });
      for (const command of [CommandIDs.tour, CommandIDs.tutorial]) {
        palette?.addItem({ command, category: trans.__('GPU') });
      }
      launcher?.add({ command: CommandIDs.tutorial, category: 'Other', rank: 10 });
      (await import('./tour')).offerTour(acting, links);
    });
  }
};

export default [
  leases,
  notebooks,
  actions,
  statusBar,
  notifications,
  marks,
  panel,
  firstUse
];
