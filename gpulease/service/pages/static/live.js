// One websocket a page: snapshot, then deltas; reconnects and resumes by itself.  Owns the page's
// picture of leases and classes and the difference between the browser's clock and the service's.
import { meta } from "./dom.js";

const FIRST_RETRY = 500; // ms; doubles
const LAST_RETRY = 15000; // ms

export class Live extends EventTarget {
  constructor() {
    super();
    this.leases = new Map();
    this.classes = [];
    this.messages = [];
    this.link = "connecting"; // connecting | up | down
    this.resume = null;
    this.retry = FIRST_RETRY;
    this.skew = 0;
    this.ready = false;
    this.timer = null;
    window.addEventListener("online", () => this.#again(0));
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.link === "down") this.#again(0);
    });
    window.addEventListener("pagehide", () => this.socket?.close());
    this.#open();
  }

  /** The service's clock now, in ms; countdowns are by it, whatever the browser's clock says. */
  now() {
    return Date.now() + this.skew;
  }

  #open() {
    clearTimeout(this.timer);
    const url = new URL(`${meta("prefix")}api/events`, window.location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("_xsrf", meta("xsrf"));
    if (this.resume !== null) url.searchParams.set("resume", this.resume);
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.addEventListener("message", (event) => {
      if (socket === this.socket) this.#take(JSON.parse(event.data));
    });
    socket.addEventListener("close", (event) => {
      if (socket === this.socket) this.#lost(event);
    });
  }

  #take(message) {
    this.retry = FIRST_RETRY;
    if (message.now) this.skew = Date.parse(message.now) - Date.now();
    if (message.type === "snapshot") {
      this.leases = new Map(message.leases.map((lease) => [lease.id, lease]));
      this.classes = message.classes;
      this.messages = message.messages ?? [];
      this.ready = true;
    } else if (message.type === "lease") {
      this.put(message.lease, false);
    } else if (message.type === "classes") {
      this.classes = message.classes;
    } else if (message.type === "messages") {
      this.messages = message.messages;
    }
    if (message.id !== undefined && message.id !== null) this.resume = message.id;
    this.#setLink("up");
    this.#changed();
  }

  /** Take a lease that a REST answer brought; an older version than what is shown is ignored. */
  put(lease, tell = true) {
    const known = this.leases.get(lease.id);
    if (!known || lease.version >= known.version) this.leases.set(lease.id, lease);
    if (tell) this.#changed();
  }

  #lost(event) {
    this.#setLink("down");
    if (event.code === 4401 || event.code === 4403) {
      this.dispatchEvent(new Event("denied"));
      return;
    }
    this.#again(this.retry * (0.75 + Math.random() / 2));
    this.retry = Math.min(this.retry * 2, LAST_RETRY);
  }

  #again(delay) {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#open(), delay);
  }

  #setLink(link) {
    if (this.link === link) return;
    this.link = link;
    this.dispatchEvent(new Event("link"));
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Show the state of the link where it is not up; a page that is old must not look new. */
export function showLink(live) {
  const place = document.getElementById("gl-link");
  const show = () => {
    const down = live.link === "down";
    place.hidden = !down;
    place.textContent = down ? "Not connected; what you see may be old. Trying again…" : "";
    document.body.classList.toggle("gl-stale", down);
  };
  live.addEventListener("link", show);
  live.addEventListener("denied", () => {
    place.hidden = false;
    place.textContent = "You are logged out. Load this page again.";
  });
  show();
}

/** Call `tick` once a second, and at once. */
export function everySecond(tick) {
  tick();
  return setInterval(tick, 1000);
}
