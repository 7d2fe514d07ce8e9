// The plugins of the extension.  Where the server extension is missing each of them does nothing.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { ILeases, Leases } from './leases';
import { StatusItem } from './statusbar';

const DOMAIN = 'gpulease';

const leases: JupyterFrontEndPlugin<ILeases> = {
  id: 'gpulease:leases',
  description: 'Follows the GPU leases of this notebook server.',
  autoStart: true,
  provides: ILeases,
  activate: (app: JupyterFrontEnd) => {
    const { events, serverSettings } = app.serviceManager;
    return new Leases(events, serverSettings, app.serviceManager);
  }
};

const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'gpulease:status-bar',
  description: 'Shows the GPU lease in the status bar.',
  autoStart: true,
  requires: [ILeases, IStatusBar],
  optional: [ITranslator],
  activate: async (
    _app: JupyterFrontEnd,
    found: ILeases,
    bar: IStatusBar,
    translator: ITranslator | null
  ) => {
    void found.present.then(present => {
      if (!present || !found.hub) {
        return;
      }
      const trans = (translator ?? nullTranslator).load(DOMAIN);
      const item = new StatusItem(
        found,
        trans,
        () => found.of(null, null),
        () => undefined
      );
      bar.registerStatusItem('gpulease:status', { item, align: 'left', rank: 10 });
    });
  }
};

export default [leases, statusBar];
