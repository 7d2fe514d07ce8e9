// Requests to the server extension, under `gpulease/api`.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { ILease, IProject, IReservation, IRun, IStatus } from './wire';

/** A refusal: a sentence and what to do next (RFC 9457). */
export class Problem extends Error {
  constructor(
    message: string,
    readonly reason: string,
    readonly nextStep: string,
    readonly status: number
  ) {
    super(message);
  }
}

/** What a person chooses. */
export interface IWish {
  gpu_class?: string;
  count?: number;
  /** With so many percent of a card it can go on. */
  at_least?: number;
}

export interface IAsk extends IWish {
  seconds?: number;
  kernel_id?: string;
}

export class Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  /**
   * The server's leases and classes; `null` where the server extension is not installed.
   *
   * A page that opens says its `language`, in which the sentences come from then on.
   */
  async status(language = ''): Promise<IStatus | null> {
    const query = language && `?${new URLSearchParams({ language })}`;
    try {
      return await this.call<IStatus>('GET', `status${query}`);
    } catch (error) {
      if (error instanceof Problem && error.status === 404) {
        return null;
      }
      throw error;
    }
  }

  ask(wanted: IAsk): Promise<ILease> {
    return this.call('POST', 'leases', wanted);
  }

  upgrade(id: string): Promise<ILease> {
    return this.call('POST', `leases/${encodeURIComponent(id)}/upgrade`, {});
  }

  keep(id: string): Promise<ILease> {
    return this.call('POST', `leases/${encodeURIComponent(id)}/keep`, {});
  }

  end(id: string): Promise<ILease> {
    return this.call('DELETE', `leases/${encodeURIComponent(id)}`);
  }

  /** This server's past leases, newest first. */
  async history(): Promise<ILease[]> {
    return (await this.call<{ items: ILease[] }>('GET', 'history')).items;
  }

  /** Reservations of the person's groups, the soonest first. */
  async reservations(): Promise<IReservation[]> {
    return (await this.call<{ items: IReservation[] }>('GET', 'reservations')).items;
  }

  /** The person's projects, with what is left of their budgets. */
  async projects(): Promise<IProject[]> {
    const found = await this.call<{ items: IProject[] }>('GET', 'projects');
    return found.items.filter(each => each.mine);
  }

  /** Run a whole notebook in the background; `path` begins at the server's root. */
  async submit(path: string): Promise<IRun> {
    return (await this.call<{ items: IRun[] }>('POST', 'runs', { path })).items[0];
  }

  private async call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, 'gpulease', 'api', path);
    const init: RequestInit = { method };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
    }
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    const text = await response.text();
    let data: unknown = null;
    try {
      data = JSON.parse(text);
    } catch {
      // A proxy's error page: the status is all that it says.
    }
    if (!response.ok) {
      const said = (data ?? {}) as {
        title?: string;
        reason?: string;
        next_step?: string;
      };
      throw new Problem(
        said.title || `${response.status} ${response.statusText}`,
        said.reason ?? '',
        said.next_step ?? '',
        response.status
      );
    }
    return data as T;
  }
}
