// What a person can set (Settings, "GPU").

import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';

export const PLUGIN = 'gpulease:plugin';

export class Options {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get notifications(): boolean {
    return this.flag('notifications', true);
  }

  get systemNotifications(): boolean {
    return this.flag('systemNotifications', true);
  }

  get countdownInTitle(): boolean {
    return this.flag('countdownInTitle', true);
  }

  get marks(): boolean {
    return this.flag('marks', true);
  }

  /** Whether marks are saved in the notebook's file. */
  get savedMarks(): boolean {
    return this.flag('savedMarks', true);
  }

  /** Hours that a request asks for; 0: as long as it is used. */
  get hours(): number {
    const found = this._settings?.composite['hours'];
    return typeof found === 'number' ? found : 0;
  }

  /** Whether the tour was offered already. */
  get toured(): boolean {
    return this.flag('toured', false);
  }

  /** Before the settings are loaded the defaults hold. */
  get loaded(): boolean {
    return this._settings !== null;
  }

  set(name: string, value: boolean | number): void {
    void this._settings
      ?.set(name, value)
      .catch(error => console.warn('gpulease:', error));
  }

  take(settings: ISettingRegistry.ISettings): void {
    this._settings = settings;
    settings.changed.connect(() => this._changed.emit());
    this._changed.emit();
  }

  private flag(name: string, fallback: boolean): boolean {
    const found = this._settings?.composite[name];
    return typeof found === 'boolean' ? found : fallback;
  }

  private readonly _changed = new Signal<this, void>(this);
  private _settings: ISettingRegistry.ISettings | null = null;
}
