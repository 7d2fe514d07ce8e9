// What the service has said so far: leases, classes, messages, and how far its clock is from here.

export class Picture {
  constructor() {
    this.leases = new Map();
    this.classes = [];
    this.messages = [];
    this.skew = 0; // ms
    this.ready = false;
  }

  take(message) {
    if (message.now) this.skew = Date.parse(message.now) - Date.now();
    if (message.type === "snapshot") {
      this.leases = new Map(message.leases.map((lease) => [lease.id, lease]));
      this.classes = message.classes;
      this.messages = message.messages ?? [];
      this.ready = true;
    } else if (message.type === "lease") {
      this.put(message.lease);
    } else if (message.type === "classes") {
      this.classes = message.classes;
    } else if (message.type === "messages") {
      this.messages = message.messages;
    }
  }

  /** Take a lease; an older version than what is known is ignored. */
  put(lease) {
    const known = this.leases.get(lease.id);
    if (!known || lease.version >= known.version) this.leases.set(lease.id, lease);
  }

  /** The service's clock now, in ms. */
  now() {
    return Date.now() + this.skew;
  }

  /** All of it as the service would say it to who comes now. */
  snapshot() {
    const { leases, classes, messages } = this;
    return { type: "snapshot", leases: [...leases.values()], classes, messages, now: new Date(this.now()).toISOString() };
  }
}
