// The websocket to the service: reconnects and resumes by itself.  Runs in a page or in the worker
// that several pages share; knows no markup and keeps no leases.

const FIRST_RETRY = 500; // ms; doubles
const LAST_RETRY = 15000; // ms

/** Dispatches `message` (detail: what the service said), `link` (connecting | up | down). */
export class Channel extends EventTarget {
  constructor(prefix, token, language) {
    super();
    Object.assign(this, { prefix, token, language, link: "connecting", resume: null, retry: FIRST_RETRY });
    this.timer = null;
    this.#open();
  }

  /** Try at once where it is down: somebody looks, or the network is back. */
  wake() {
    if (this.link === "down") this.#again(0);
  }

  close() {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  #open() {
    clearTimeout(this.timer);
    const url = new URL(`${this.prefix}api/events`, self.location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("_xsrf", this.token);
    url.searchParams.set("language", this.language);
    if (this.resume !== null) url.searchParams.set("resume", this.resume);
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.addEventListener("message", (event) => {
      if (socket === this.socket) this.#take(JSON.parse(event.data));
    });
    socket.addEventListener("close", () => {
      if (socket === this.socket) this.#lost();
    });
  }

  #take(message) {
    this.retry = FIRST_RETRY;
    if (message.id !== undefined && message.id !== null) this.resume = message.id;
    this.#setLink("up");
    this.dispatchEvent(new CustomEvent("message", { detail: message }));
  }

  #lost() {
    this.#setLink("down");
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
    this.dispatchEvent(new CustomEvent("link", { detail: link }));
  }
}
