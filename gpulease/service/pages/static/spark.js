// The last ten minutes of a lease as two small lines: GPU use and GPU memory.
import * as api from "./api.js";
import { h, svg } from "./dom.js";
import { _ } from "./texts.js";
import { bytes, percent } from "./words.js";

const EVERY = 10_000; // ms between two readings, as the service keeps them
const KEPT = 60;
const SPAN = EVERY * KEPT;
const [WIDTH, HEIGHT] = [240, 40];

/** The readings of the leases that have a GPU: what the service has kept, and what comes after it. */
export class Readings {
  constructor(live, changed) {
    Object.assign(this, { live, changed, known: new Map() });
    live.addEventListener("change", () => this.#follow());
    setInterval(() => this.#add(), EVERY);
  }

  of(lease) {
    return this.known.get(lease.id) ?? [];
  }

  #holding() {
    return [...this.live.leases.values()].filter((lease) => lease.state === "active" || lease.state === "warned");
  }

  #follow() {
    for (const lease of this.#holding()) {
      if (this.known.has(lease.id)) continue;
      this.known.set(lease.id, []);
      this.#read(lease.id);
    }
  }

  async #read(id) {
    try {
      const { items } = await api.get(`leases/${id}/use`);
      this.known.set(id, items.map((item) => ({ ...item, at: Date.parse(item.at) })));
      this.changed();
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error; // the lines begin now, then
    }
  }

  #add() {
    const at = this.live.now();
    for (const { id, utilisation, memory_used } of this.#holding()) {
      const readings = [...(this.known.get(id) ?? []), { at, utilisation, memory_used }];
      this.known.set(id, readings.slice(-KEPT));
    }
    this.changed();
  }
}

/** Runs of points whose value is known, as an SVG path. */
function line(readings, now, valueOf) {
  let pen = "M";
  const parts = [];
  for (const reading of readings) {
    const value = valueOf(reading);
    if (value === null || value === undefined) {
      pen = "M";
      continue;
    }
    const x = WIDTH * Math.max(0, 1 - (now - reading.at) / SPAN);
    parts.push(`${pen}${x.toFixed(1)} ${(HEIGHT * (1 - Math.min(value, 1))).toFixed(1)}`);
    pen = "L";
  }
  return parts.join("");
}

function spark(kind, title, value, path) {
  return h(
    "figure",
    { class: "gl-spark", "data-key": kind },
    h("figcaption", {}, h("span", {}, title), " ", h("strong", { class: "gl-use-share" }, value), path && ` · ${_("last 10 min")}`),
    path && svg("svg", { viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`, preserveAspectRatio: "none", "aria-hidden": "true", class: `gl-spark-${kind}` }, svg("path", { d: path })),
  );
}

/** Use and memory now, and a line of each over the last ten minutes. */
export function sparks(lease, readings, now) {
  const whole = lease.devices.reduce((sum, device) => sum + device.memory, 0);
  const used = lease.memory_used;
  const memory = used === null || used === undefined || !whole ? null : _("{used} of {whole}", { used: bytes(used) || _("{size} MB", { size: 0 }), whole: bytes(whole) });
  return h(
    "div",
    { class: "gl-sparks", "data-key": "sparks" },
    spark("use", _("GPU use"), percent(lease.utilisation), line(readings, now, (reading) => reading.utilisation)),
    memory ? spark("memory", _("GPU memory"), memory, line(readings, now, (reading) => (reading.memory_used === null ? null : reading.memory_used / whole))) : null,
  );
}
