// What a replay would have made of last week, drawn: one GPU and all of them, now and then, and the
// curve of idle time-outs.
import { HEIGHT, axes, colour, figure, frame, moment } from "./charts.js";
import { h, svg, update } from "./dom.js";
import { Plot } from "./lib/chart.js";
import { _ } from "./texts.js";
import { duration } from "./words.js";

/** Draw the answer of the service's `whatif` in `place`; returns the plots. */
export function drawReplay(place, found) {
  const leased = frame(_("GPUs leased, now and with these values"), _("Now on average {now}, with these values {then}; in use {used}.", averages(found)));
  const curve = found.curve.length > 2 ? frame(_("Idle time-out: hours saved and people interrupted"), found.curve.map(point).join(" ")) : null;
  update(place);
  place.append(oneGPU(found), leased.whole, ...(curve ? [curve.whole] : []));
  const width = place.clientWidth;
  return [leasedPlot(found, width, leased.inner), ...(curve ? [curvePlot(found, width, curve.inner)] : [])];
}

const DAY = 86_400_000; // ms
const [LANE, WIDE] = [26, 1000]; // the height of a line, the width that the time has

/** One GPU over the time, a line for each policy: where it was leased, and where it was in use. */
function oneGPU({ since, until, now, then }) {
  const [from, to] = [since, until].map(Date.parse);
  const at = (ms) => (WIDE * (ms - from)) / (to - from);
  const bars = (spans, name, lane) => spans.map(([begin, end]) => svg("rect", { class: `gl-span-${name}`, x: at(from + begin * 1000).toFixed(1), width: Math.max(at(from + end * 1000) - at(from + begin * 1000), 1).toFixed(1), y: lane * LANE + 2, height: LANE - 6 }));
  const midnights = [];
  for (const day = new Date(from); day.getTime() < to; day.setTime(day.getTime() + DAY)) {
    const start = new Date(day).setHours(24, 0, 0, 0);
    if (start < to) midnights.push(svg("line", { x1: at(start).toFixed(1), x2: at(start).toFixed(1), y1: 0, y2: 2 * LANE }));
  }
  const hours = (spans) => figure(spans.reduce((sum, [begin, end]) => sum + end - begin, 0) / 3600);
  const words = _("Leased {now} h now, {then} h with these values. A line is a midnight.", { now: hours(now.gpu.held), then: hours(then.gpu.held) });
  const { whole, inner } = frame(_("One GPU, now (above) and with these values"), words);
  inner.append(svg("svg", { class: "gl-spans", viewBox: `0 0 ${WIDE} ${2 * LANE}`, preserveAspectRatio: "none" }, midnights, [now, then].flatMap(({ gpu }, lane) => [bars(gpu.held, "held", lane), bars(gpu.busy, "busy", lane)])));
  const key = (name, text) => h("li", {}, h("span", { class: `gl-swatch gl-span-${name}`, "aria-hidden": "true" }), text);
  whole.append(h("ul", { class: "gl-legend" }, key("held", _("leased")), key("busy", _("in use"))));
  return whole;
}

const mean = (bins, part) => bins.reduce((sum, bin) => sum + bin[part], 0) / Math.max(bins.length, 1);
const averages = ({ now, then }) => ({ now: figure(mean(now.bins, 0)), then: figure(mean(then.bins, 0)), used: figure(mean(then.bins, 1)) });
const point = ({ idle, saved_hours, interrupted }) => _("{time}: {hours} GPU-hours saved, {n} interrupted.", { time: duration(idle), hours: figure(saved_hours), n: interrupted });

const shared = (width) => ({ width, height: HEIGHT, cursor: { drag: { x: false, y: false } }, legend: { markers: { width: 1 } } });

function leasedPlot({ since, until, now, then }, width, place) {
  const [from, to] = [since, until].map((time) => Date.parse(time) / 1000);
  const step = (to - from) / now.bins.length;
  const one = (label, hue, more = {}) => ({ label, stroke: colour(hue), width: 2, points: { show: false }, value: (_plot, value) => (value === null ? "" : figure(value)), ...more });
  return new Plot(
    {
      ...shared(width),
      axes: axes(3600),
      scales: { y: { range: (_plot, _least, highest) => [0, Math.max(now.gpus, highest ?? 0, 1)] } },
      series: [{ label: _("Time"), value: moment }, one(_("in use"), "--bs-success", { fill: colour("--bs-success-bg-subtle"), width: 1 }), one(_("leased now"), "--bs-secondary", { dash: [6, 4] }), one(_("leased with these values"), "--bs-primary")],
    },
    [now.bins.map((_bin, at) => from + at * step), then.bins.map((bin) => bin[1]), now.bins.map((bin) => bin[0]), then.bins.map((bin) => bin[0])],
    place,
  );
}

/** One place on the axis for each time-out: they are factors of each other. */
function curvePlot({ curve, idle }, width, place) {
  const [line] = axes(60);
  const name = (at) => (Number.isInteger(at) && curve[at] ? `${duration(curve[at].idle)}${curve[at].idle === idle ? ` (${_("now")})` : ""}` : "");
  const one = (label, hue, scale) => ({ label, scale, stroke: colour(hue), width: 2, points: { show: true, size: 8, fill: colour(hue) }, value: (_plot, value) => (value === null ? "" : figure(value)) });
  const side = (scale, at, hue) => ({ ...line, scale, side: at, values: (_plot, splits) => splits.map((value) => (Number.isInteger(value) ? figure(value) : "")), size: 55, space: 40, stroke: colour(hue), grid: { show: at === 3, stroke: colour("--bs-border-color-translucent"), width: 1 } });
  const from0 = { range: (_plot, _least, highest) => [0, Math.max(highest ?? 0, 1) * 1.05] };
  return new Plot(
    {
      ...shared(width),
      axes: [{ ...line, values: (_plot, splits) => splits.map(name), splits: () => curve.map((_point, at) => at) }, side("hours", 3, "--bs-primary"), side("people", 1, "--bs-danger")],
      scales: { x: { time: false, range: () => [-0.4, curve.length - 0.6] }, hours: { range: (_plot, least, highest) => [Math.min(least ?? 0, 0), Math.max(highest ?? 0, 1) * 1.05] }, people: from0 },
      series: [{ label: _("Idle time-out"), value: (_plot, at) => (at === null ? "" : name(at)) }, one(_("GPU-hours saved"), "--bs-primary", "hours"), one(_("people interrupted"), "--bs-danger", "people"), { ...one(_("now"), "--bs-body-color", "hours"), width: 0, points: { show: true, size: 14, width: 3 } }],
    },
    [curve.map((_point, at) => at), curve.map(({ saved_hours }) => saved_hours), curve.map(({ interrupted }) => interrupted), curve.map((each) => (each.idle === idle ? each.saved_hours : null))],
    place,
  );
}
