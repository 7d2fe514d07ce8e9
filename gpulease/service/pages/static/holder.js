// What the student page and the card share: one's own leases, one's servers, asking, keeping,
// returning.  Owns no markup.
import * as api from "./api.js";
import { alertError, announce, clearAlert, meta } from "./dom.js";
import { isLive, spoken } from "./lease.js";

const RECENT = 3600_000; // ms: how long an ended lease stays the first thing shown
const OLD = 20_000; // ms: less than the service believes itself what servers it saw

export class Holder extends EventTarget {
  constructor(live) {
    super();
    this.live = live;
    this.servers = null; // null: not known yet
    this.looked = 0;
    this.busy = false;
    this.told = new Map();
    this.questions = new Map(); // lease id -> what a person must agree to before it is returned
    live.addEventListener("change", () => this.#tell());
    document.addEventListener("visibilitychange", () => !document.hidden && this.lookUpServers());
    window.addEventListener("focus", () => this.lookUpServers());
  }

  /** One's own leases, the newest first; those of background runs are told beside the runs. */
  own() {
    const user = meta("user");
    return [...this.live.leases.values()]
      .filter((lease) => lease.user === user && !lease.run)
      .sort((a, b) => (a.created < b.created ? 1 : -1));
  }

  current() {
    return this.own().filter(isLive);
  }

  /** The lease that ended last, where no lease has followed it on its server. */
  lastEnded() {
    const [latest] = this.own();
    if (!latest || isLive(latest) || !latest.end) return null;
    return this.live.now() - Date.parse(latest.end.at) < RECENT ? latest : null;
  }

  /** Running servers that have no lease yet. */
  freeServers() {
    const taken = new Set(this.current().map((lease) => lease.server));
    return (this.servers ?? []).filter((server) => !taken.has(server.name));
  }

  /** Where a server is, "" when it does not run. */
  serverUrl(name) {
    return (this.servers ?? []).find((server) => server.name === name)?.url ?? "";
  }

  mayAsk() {
    if (this.servers === null) return false;
    return this.servers.length ? this.freeServers().length > 0 : this.current().length === 0;
  }

  /** Before somebody clicks: what servers there are now, so that the click waits for no hub. */
  lookAgain() {
    if (performance.now() - this.looked > OLD) this.lookUpServers();
  }

  async lookUpServers() {
    this.looked = performance.now();
    try {
      this.servers = (await api.get("servers")).items;
      this.dispatchEvent(new Event("change"));
    } catch (error) {
      if (this.servers === null) alertError(error);
    }
  }

  /** Ask for `gpu_class`, for `seconds` (0: as long as it is used); with no server running, the ask follows the start of the default one. */
  async ask(gpuClass, server, count = 1, seconds = 0, atLeast = 0) {
    const several = { ...(count > 1 ? { count } : {}), ...(seconds ? { seconds } : {}), ...(atLeast ? { at_least: atLeast } : {}) };
    const start = this.servers !== null && this.servers.length === 0;
    await this.#do(async () => {
      this.live.put(await api.ask({ gpu_class: gpuClass, ...several, server: start ? "" : server }));
      if (start) this.#startServer();
    });
  }

  /** Leave for the server, which opens the notebooks that were open there: the GPU is for them. */
  #startServer() {
    window.top.location.assign(`${meta("hub")}spawn/${meta("user-path")}`);
  }

  async act(action, id) {
    const lease = this.live.leases.get(id);
    if (action === "keep") await this.#do(async () => this.live.put(await api.keep(id)));
    if (action === "upgrade") await this.#do(async () => this.live.put(await api.upgrade(id)));
    if (action === "end") await this.#do(() => this.#end(id, false));
    if (action === "end-anyway") await this.#do(() => this.#end(id, true));
    if (action === "stay") {
      this.questions.delete(id);
      this.dispatchEvent(new Event("change"));
    }
    if (action === "again" && lease) {
      const running = (this.servers ?? []).map((server) => server.name);
      const server = running.includes(lease.server) ? lease.server : (running[0] ?? "");
      await this.ask(lease.gpu_class, server, lease.count, 0, lease.least_percent ?? 0);
    }
  }

  /** What is asked before lease `id` is returned, "" for nothing. */
  question(id) {
    return this.questions.get(id) ?? "";
  }

  async #end(id, force) {
    this.questions.delete(id);
    try {
      this.live.put(await api.end(id, { force }));
    } catch (error) {
      if (!(error instanceof api.Refusal) || error.reason !== "cell_running") throw error;
      this.questions.set(id, error.sentence);
      announce(error.sentence);
    }
  }

  async #do(work) {
    if (this.busy) return; // the second click of two, before the buttons are drawn disabled
    this.busy = true;
    this.dispatchEvent(new Event("change"));
    try {
      await work();
      clearAlert();
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      alertError(error);
    } finally {
      this.busy = false;
      this.dispatchEvent(new Event("change"));
    }
  }

  // A state is told once; figures that change every second are not.
  #tell() {
    const first = this.told.size === 0;
    for (const lease of this.own()) {
      const mark = `${lease.state}/${lease.reason}/${lease.position ?? ""}`;
      if (this.told.get(lease.id) === mark) continue;
      this.told.set(lease.id, mark);
      if (!first) announce(spoken(lease));
      if (!first && lease.end?.reason === "server_gone") this.lookUpServers();
    }
    if (first) this.told.set("", "");
    this.dispatchEvent(new Event("change"));
  }
}

/** Draw at most once a frame, however many events came. */
export function drawer(draw) {
  let planned = false;
  return () => {
    if (planned) return;
    planned = true;
    setTimeout(() => {
      planned = false;
      draw();
    }, 0);
  };
}
