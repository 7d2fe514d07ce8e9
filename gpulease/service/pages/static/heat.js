// When each device was in use: devices by steps of time.  Makes markup only.
import { h } from "./dom.js";
import { _, _n, locale } from "./texts.js";
import { percent } from "./words.js";

const MOST = 100; // devices that are shown
const LEVELS = 4;
const [HOUR, DAY] = [3600, 86_400];

/** The table of the service's `usage/devices`. */
export function heatMap({ since, step, items }) {
  if (!items.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("No device is seen."));
  const form = step >= DAY ? { day: "numeric", month: "short" } : step > HOUR ? { weekday: "short", hour: "numeric" } : step === HOUR ? { hour: "numeric" } : { timeStyle: "short" };
  const long = step >= DAY ? { dateStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" };
  const times = items[0].held.map((_share, at) => new Date(Date.parse(since) + at * step * 1000));
  const head = (time) => h("th", { scope: "col", title: time.toLocaleString(locale, long) }, time.toLocaleString(locale, form));
  const names = ({ name, uuid, node }) => h("th", { scope: "row", title: uuid }, name || uuid, node && h("div", { class: "gl-small" }, node));
  const line = (item) => h("tr", { "data-key": item.uuid }, names(item), times.map((_time, at) => square(item.held[at], item.busy[at])));
  return [
    h("div", { class: "gl-heat", "data-key": "heat", role: "region", tabindex: "0", "aria-label": _("Use of each device") }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, _("Device")), times.map(head))), h("tbody", {}, items.slice(0, MOST).map(line)))),
    items.length > MOST ? h("p", { class: "gl-small", "data-key": "more" }, _n("{n} more device is in the CSV.", "{n} more devices are in the CSV.", items.length - MOST)) : null,
  ];
}

/** How much of a step a device was busy; nothing where no lease held it. */
function square(held, busy) {
  if (!held) return h("td", {}, h("span", { class: "visually-hidden" }, _("free")));
  const level = busy ? Math.ceil(busy * LEVELS) : 0;
  return h("td", { class: `gl-heat-${level}`, title: _("leased {held}, in use {busy}", { held: percent(held), busy: percent(busy) }) }, Math.round(busy * 100).toLocaleString(locale));
}
