// What GPUs did over time, all and each, and how many people waited: in pictures and in words.
import { Plot } from "./lib/chart.js";
import * as api from "./api.js";
import { alertError, h, meta, update } from "./dom.js";
import { heatMap } from "./heat.js";
import { _, _n, locale } from "./texts.js";
import { duration, hours, percent } from "./words.js";

export const HEIGHT = 220; // px
// The lowest of the stack first: what a lease's GPU did, and a colour of the page's theme.
const LAYERS = [
  ["busy", _("in use"), "--bs-success"],
  ["quiet", _("cell running, GPU idle"), "--bs-info"],
  ["idle", _("idle"), "--bs-warning"],
  ["unknown", _("no data"), "--bs-secondary"],
];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/** A number of GPUs; of less than one, two digits, for a quarter is not none. */
export const figure = (value) => hours(value ?? 0);

/** Keep `place` showing the hours that `choice`, a select element, says. */
export function showCharts(place, choice) {
  let found = null;
  let devices = null;
  const redraw = keepDrawn(place, draw);

  async function read() {
    try {
      const hours = `hours=${choice.value}`;
      [found, devices] = await Promise.all([api.get(`usage/timeline?${hours}`), api.get(`usage/devices?${hours}`)]);
    } catch (error) {
      alertError(error);
      return;
    }
    redraw();
  }

  function draw() {
    if (!found) return [];
    const link = (name) => h("a", { href: `${meta("prefix")}api/usage/${name}.csv?hours=${choice.value}`, download: `${name}.csv` }, _("As CSV"));
    const used = frame(_("Leased GPUs"), usedWords(found));
    const waited = frame(_("People waiting"), waitWords(found));
    update(place);
    const heading = h("h3", { class: "h6 mb-1" }, _("Use of each device"));
    const legend = h("p", { class: "gl-small" }, _("In use, in percent. Empty: no lease held it."));
    place.append(used.whole, waited.whole, h("p", {}, link("timeline")), heading, legend, h("div", {}, heatMap(devices)), link("devices"));
    const width = place.clientWidth;
    return [usedPlot(found, width, used.inner), waitPlot(found, width, waited.inner)];
  }

  choice.addEventListener("change", read);
  return read;
}

/** Keep the charts that `draw()` makes in `place` as wide as it, in the colours of the theme; returns what draws them again. */
export function keepDrawn(place, draw) {
  let plots = [];
  const redraw = () => {
    for (const plot of plots) plot.destroy();
    plots = draw();
  };
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(() => {
    for (const plot of plots) {
      const width = plot.root.parentElement.clientWidth;
      if (width) plot.setSize({ width, height: HEIGHT });
    }
  }).observe(place);
  return redraw;
}

/** A picture that a screen reader has as the words below it. */
export function frame(title, words) {
  const inner = h("div", { role: "img", "aria-label": `${title}. ${words}` });
  const whole = h("figure", { class: "gl-chart" }, h("figcaption", {}, h("h3", { class: "h6 mb-1" }, title), h("p", { class: "gl-small" }, words)), inner);
  return { whole, inner };
}

const mean = (items, of) => items.reduce((sum, item) => sum + of(item), 0) / Math.max(items.length, 1);
const held = (item) => LAYERS.reduce((sum, [name]) => sum + item[name], 0);

function usedWords({ items, devices }) {
  const all = mean(items, held);
  if (!all) return _("No GPU was leased.");
  const busy = mean(items, (item) => item.busy) / all;
  return _("On average {held} of {devices} GPUs were leased, and in use {share} of that time.", { held: figure(all), devices, share: percent(busy) });
}

function waitWords({ items }) {
  const granted = items.reduce((sum, item) => sum + item.granted, 0);
  if (!granted) return _("Nobody was given a GPU.");
  const longest = Math.max(...items.map((item) => item.longest_wait ?? 0));
  return _n("{n} GPU was given; the wait was {time}.", "{n} GPUs were given; the longest wait was {time}.", granted, { time: duration(longest) });
}

export function axes(step) {
  const days = step >= 3600;
  const style = days ? { day: "numeric", month: "short" } : { timeStyle: "short" };
  const words = (seconds) => (days ? new Date(seconds * 1000).toLocaleDateString(locale, style) : new Date(seconds * 1000).toLocaleTimeString(locale, style));
  const line = { stroke: colour("--bs-border-color-translucent"), width: 1 };
  const shared = { stroke: colour("--bs-body-color"), grid: line, ticks: line };
  return [
    { ...shared, values: (_plot, splits) => splits.map(words), space: 90 },
    { ...shared, values: (_plot, splits) => splits.map((value) => (Number.isInteger(value) ? value : "")), size: 40 },
  ];
}

export const moment = (_plot, seconds) => (seconds === null ? "" : new Date(seconds * 1000).toLocaleString(locale, { dateStyle: "short", timeStyle: "short" }));
const options = ({ step }, width) => ({ width, height: HEIGHT, axes: axes(step), cursor: { drag: { x: false, y: false } }, legend: { markers: { width: 1 } } });
const upTo = (most) => ({ y: { range: (_plot, _least, highest) => [0, Math.max(most, highest ?? 0, 1)] } });
const times = (items) => items.map((item) => Date.parse(item.at) / 1000);

function usedPlot(found, width, place) {
  const { items } = found;
  const tops = LAYERS.map((_layer, index) => items.map((item) => LAYERS.slice(0, index + 1).reduce((sum, [name]) => sum + item[name], 0)));
  const series = LAYERS.map(([name, label, hue]) => ({
    label,
    stroke: colour(hue),
    fill: colour(hue),
    points: { show: false },
    value: (_plot, _top, _series, at) => (at === null ? "" : figure(items[at][name])),
  }));
  // The highest is painted first, and what lies below it over it.
  return new Plot(
    { ...options(found, width), scales: upTo(found.devices), series: [{ label: _("Time"), value: moment }, ...series.reverse()] },
    [times(items), ...tops.reverse()],
    place,
  );
}

function waitPlot(found, width, place) {
  const { items } = found;
  const one = (label, hue, value) => ({ label, stroke: colour(hue), width: 2, points: { show: false }, value });
  return new Plot(
    {
      ...options(found, width),
      scales: upTo(1),
      series: [
        { label: _("Time"), value: moment },
        { ...one(_("waiting"), "--bs-primary", (_plot, value) => (value === null ? "" : figure(value))), fill: colour("--bs-primary-bg-subtle") },
        { ...one(_("median wait"), "--bs-secondary", (_plot, _value, _series, at) => (at === null || items[at].wait === null ? "–" : duration(items[at].wait))), width: 0 },
      ],
    },
    [times(items), items.map((item) => item.waiting), items.map(() => null)],
    place,
  );
}
