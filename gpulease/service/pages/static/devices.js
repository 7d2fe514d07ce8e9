// Every device as a tile: what it does now, for whom and why, by pool and node.
import * as api from "./api.js";
import { alertError, h, update } from "./dom.js";
import { _, _n } from "./texts.js";
import { bytes, localTimes } from "./words.js";

const EVERY = 2000; // ms between two looks, while leases change
const ALWAYS = 30_000; // ms: some devices change without any lease

const USES = {
  free: _("free"),
  reserved: _("reserved"),
  ready: _("a pod stands ready"),
  starting: _("starting"),
  busy: _("in use"),
  quiet: _("cell running, GPU idle"),
  idle: _("idle"),
  unknown: _("no data"),
  warned: _("ends soon"),
  draining: _("saving variables"),
  occupied: _("used by others"),
  quarantined: _("quarantined"),
  lost: _("lost"),
};

/** Keep `place` showing them; `live` says when something changed. */
export function showDevices(place, live) {
  let timer = null;
  let items = null;
  let chosen = null;

  async function read() {
    timer = null;
    try {
      const found = (await api.get("devices")).items;
      if (JSON.stringify(found) === JSON.stringify(items)) return; // thousands of tiles stay as they are
      items = found;
      draw();
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.status) alertError(error); // that the service is away is said at the bottom
    }
  }
  const soon = () => {
    timer ??= setTimeout(read, EVERY);
  };
  const draw = () => update(place, map(items ?? [], chosen));

  place.addEventListener("click", (event) => {
    const tile = event.target.closest("[data-uuid]");
    if (!tile) return;
    chosen = chosen === tile.dataset.uuid ? null : tile.dataset.uuid;
    draw();
  });
  live.addEventListener("change", soon);
  setInterval(() => document.hidden || soon(), ALWAYS);
  read();
}

function map(items, chosen) {
  if (!items.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("No device is seen."));
  const found = items.find((item) => item.uuid === chosen);
  return [legend(items), [...grouped(items)].map(([name, group]) => shelf(name, group, chosen)), found ? about(found) : null];
}

/** Groups in the order of the list: "pool" or "pool · node". */
function grouped(items) {
  const groups = new Map();
  for (const item of items) {
    const name = [item.pool, item.node].filter(Boolean).join(" · ");
    groups.set(name, [...(groups.get(name) ?? []), item]);
  }
  return groups;
}

function legend(items) {
  const number = (use) => items.filter((item) => item.use === use).length;
  const present = Object.keys(USES).filter(number);
  return h("ul", { class: "gl-legend", "data-key": "legend" }, present.map((use) => h("li", { "data-key": use }, h("span", { class: `gl-swatch gl-use-${use}`, "aria-hidden": "true" }), `${USES[use]} ${number(use)}`)));
}

/** The items of each card: one, or its parts, which stand in one line. */
function byCard(items) {
  const cards = new Map();
  for (const item of items) {
    const card = item.card ?? item.uuid;
    cards.set(card, [...(cards.get(card) ?? []), item]);
  }
  return cards;
}

function shelf(name, items, chosen) {
  const cards = byCard(items);
  return h(
    "div",
    { class: "gl-shelf", "data-key": name },
    h("h3", { class: "h6" }, name, h("span", { class: "gl-small" }, ` ${_n("{n} device", "{n} devices", cards.size)}`)),
    h(
      "ul",
      { class: "gl-tiles" },
      [...cards].map(([card, parts]) => h("li", { "data-key": card, class: parts[0].card && "gl-card" }, parts.map((item) => tile(item, item.uuid === chosen)))),
    ),
  );
}

function tile(item, pressed) {
  const use = item.percent ? _("{use}, {percent}%", { use: USES[item.use], percent: item.percent }) : USES[item.use];
  const words = [item.name || item.uuid, use, item.user].filter(Boolean);
  return h(
    "button",
    { type: "button", class: `gl-tile gl-use-${item.use}`, "data-key": item.uuid, "data-uuid": item.uuid, "aria-pressed": String(pressed), "aria-label": words.join(", "), title: [...words, localTimes(item.why)].filter(Boolean).join(", ") },
    h("span", { class: "gl-tile-use" }, use),
    h("span", { class: "gl-tile-who" }, item.user || item.name || item.uuid),
  );
}

function about(item) {
  const fact = (name, value) => (value ? h("div", { class: "gl-fact", "data-key": name }, h("dt", {}, name), h("dd", {}, value)) : null);
  return h(
    "dl",
    { class: "gl-facts gl-device", "data-key": "about", role: "status" },
    fact(_("Device"), [item.name, bytes(item.memory)].filter(Boolean).join(" · ")),
    fact(_("Identifier"), item.uuid),
    fact(_("Part"), item.percent && _("{percent}% of a card", { percent: item.percent })),
    fact(_("Now"), USES[item.use]),
    fact(_("Who"), item.user),
    fact(_("Class"), item.gpu_class),
    fact(_("Why"), localTimes(item.why)),
  );
}
