// Turns figures into words: durations, sizes, times.  Pure.
import { _, _n, locale } from "./texts.js";

/** A figure and its unit stay on one line. */
const unbroken = (text) => text.replaceAll(" ", "\u00a0");

function inUnits(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 10) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
}

/** "45 s", "2 min 5 s", "1 h 20 min"; seconds in. */
export const duration = (seconds) => unbroken(inUnits(seconds));

/** "1:05", "1:02:05": a countdown, whose digits keep their place. */
export function clock(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const pad = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const rest = `${pad(Math.floor((whole % 3600) / 60))}:${pad(whole % 60)}`;
  return hours ? `${hours}:${rest}` : rest.replace(/^0/, "");
}

/** "about 3 min" until an ISO time; "unknown" for none. */
export function about(iso, now) {
  if (!iso) return _("unknown");
  const seconds = secondsUntil(iso, now);
  if (seconds <= 5) return _("any moment");
  if (seconds < 50) return _("in about {n} s", { n: Math.ceil(seconds / 10) * 10 });
  if (seconds < 5400) return _("in about {n} min", { n: Math.max(1, Math.round(seconds / 60)) });
  if (seconds < 2 * 86400) return _("in about {n} h", { n: Math.round(seconds / 3600) });
  return _n("in about {n} day", "in about {n} days", Math.round(seconds / 86400));
}

/** "16 GB" of GPU memory; bytes in.  Vendors call 80 GiB 80 GB, and so do `%gpu` and JupyterLab. */
export function bytes(size) {
  if (!size) return "";
  const gib = size / 2 ** 30;
  if (gib < 1) return unbroken(_("{size} MB", { size: Math.round(size / 2 ** 20) }));
  return unbroken(_("{size} GB", { size: gib.toLocaleString(locale, { maximumFractionDigits: gib < 10 ? 1 : 0 }) }));
}

export const percent = (share) => (share === null || share === undefined ? _("no data") : share.toLocaleString(locale, { style: "percent", maximumFractionDigits: 0 }));

/** GPU-hours: of less than one, two digits, for a quarter is not none. */
export const hours = (value) => value.toLocaleString(locale, { maximumFractionDigits: Math.abs(value) < 1 ? 2 : 1 });

export const secondsUntil = (iso, now) => (Date.parse(iso) - now) / 1000;

/** Local date and time, short. */
export function when(iso) {
  const date = new Date(iso);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString(locale, { timeStyle: "short" });
  return today ? time : `${date.toLocaleDateString(locale, { day: "numeric", month: "short" })} ${time}`;
}

/** The hour of a time on some zone's wall ("2030-03-02T14:00"), as the reader's clock writes it. */
export const hourOf = (wallTime) => new Date(`${wallTime.slice(0, 16)}:00Z`).toLocaleTimeString(locale, { timeStyle: "short", timeZone: "UTC" });

/** A sentence with its instants ("2030-01-02T19:19:05Z") as the reader's own clock shows them. */
export const localTimes = (sentence) => sentence.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, when);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The name of a server as its owner reads it. */
export const serverName = (name) => (name ? name : _("your server"));

/** The name of somebody's server as others read it. */
export const theirServer = (name) => (name ? name : _("default server"));
