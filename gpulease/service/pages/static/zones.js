// The clock on the wall of a zone, as the service writes times of reservations.  Pure.
import { _, locale } from "./texts.js";
import { hourOf } from "./words.js";

export const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const formats = new Map();

function formatOf(zone) {
  if (!formats.has(zone)) {
    const two = "2-digit";
    const parts = { year: "numeric", month: two, day: two, hour: two, minute: two, hourCycle: "h23" };
    formats.set(zone, new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...parts }));
  }
  return formats.get(zone);
}

/** "2026-03-02T14:00": what an instant is on the wall of a zone. */
export function wall(date, zone = HERE) {
  const parts = formatOf(zone).formatToParts(date);
  const of = Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  return `${of.year}-${of.month}-${of.day}T${of.hour}:${of.minute}`;
}

/** The zones that the browser knows, the reader's own first. */
export function zones() {
  const known = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
  return [...new Set([HERE, "UTC", ...known])];
}

const dayOf = (wallTime) => new Date(`${wallTime}:00Z`).toLocaleDateString(locale, { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

/** "Mon, 2 Mar, 14:00 to 16:00" from two wall-clock times. */
export function span(start, end) {
  const sameDay = start.slice(0, 10) === end.slice(0, 10);
  const until = sameDay ? hourOf(end) : `${dayOf(end)}, ${hourOf(end)}`;
  return _("{day}, {start} to {end}", { day: dayOf(start), start: hourOf(start), end: until });
}
