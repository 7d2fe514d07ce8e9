// A page's end of the live channel: the picture of leases and classes, kept up to date.  The tabs of
// one person share one websocket by a worker; where there is none, a page has its own.
import { Channel } from "./channel.js";
import { meta } from "./dom.js";
import { find, lose } from "./link.js";
import { Picture } from "./picture.js";

export class Live extends EventTarget {
  #picture = new Picture();
  #port = null; // of the shared worker
  #channel = null; // the page's own

  constructor() {
    super();
    this.link = "connecting"; // connecting | up | down
    window.addEventListener("online", () => this.#wake());
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake());
    window.addEventListener("pagehide", () => this.#leave());
    document.addEventListener("gl-signed-out", () => this.#leave());
    window.addEventListener("pageshow", (event) => event.persisted && this.#join());
    this.#join();
  }

  get leases() {
    return this.#picture.leases;
  }

  get classes() {
    return this.#picture.classes;
  }

  get messages() {
    return this.#picture.messages;
  }

  /** Whether anything was heard yet. */
  get ready() {
    return this.#picture.ready;
  }

  /** The service's clock now, in ms; countdowns are by it, whatever the browser's clock says. */
  now() {
    return this.#picture.now();
  }

  /** Take a lease that a REST answer brought. */
  put(lease) {
    this.#picture.put(lease);
    this.#changed();
  }

  #join() {
    if (typeof SharedWorker === "undefined") this.#alone();
    else this.#share();
  }

  #share() {
    // The name keeps people apart who use this browser one after the other, and languages: a
    // channel is told in one.
    const worker = new SharedWorker(new URL("./shared.js", import.meta.url), { type: "module", name: `gpulease ${meta("user")} ${document.documentElement.lang}` });
    worker.addEventListener("error", () => {
      if (this.#port === worker.port) this.#alone();
    });
    this.#port = worker.port;
    worker.port.addEventListener("message", ({ data }) => {
      if (this.#port !== worker.port) return;
      if (data.said) this.#take(data.said);
      if (data.link) this.#setLink(data.link);
    });
    worker.port.start();
    worker.port.postMessage({ hello: { prefix: meta("prefix"), token: meta("xsrf"), language: document.documentElement.lang } });
  }

  #alone() {
    this.#port = null;
    const channel = new Channel(meta("prefix"), meta("xsrf"), document.documentElement.lang);
    this.#channel = channel;
    channel.addEventListener("message", ({ detail }) => this.#take(detail));
    channel.addEventListener("link", ({ detail }) => this.#setLink(detail));
  }

  #wake() {
    this.#port?.postMessage({ wake: true });
    this.#channel?.wake();
  }

  #leave() {
    this.#port?.postMessage({ bye: true });
    this.#channel?.close();
    this.#port = this.#channel = null;
  }

  #take(message) {
    this.#picture.take(message);
    this.#changed();
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
  const show = () => (live.link === "down" ? lose("live") : find("live"));
  live.addEventListener("link", show);
  show();
}

/** Call `tick` once a second, and at once. */
export function everySecond(tick) {
  tick();
  return setInterval(tick, 1000);
}
