// Who came to the sessions of a reservation: people by sessions.  Makes markup only.
import { h } from "./dom.js";
import { _, locale } from "./texts.js";
import { duration, hourOf } from "./words.js";

const DAY = { day: "numeric", month: "short" };
const day = (start) => new Date(`${start}:00`).toLocaleDateString(locale, DAY);

/**
 * The grid of a reservation's `sessions` that have begun (wall-clock times), of which one is `here`.
 *
 * `people` had to come; `rows` are those of the service's CSV, which names who came beside them.
 */
export function attendance({ people, sessions, rows, here, address }) {
  const came = new Map(rows.filter((row) => row.came).map((row) => [`${row.window} ${row.user}`, row]));
  const names = [...new Set([...people, ...rows.map((row) => row.user)])].sort((a, b) => a.localeCompare(b, locale));
  const times = [...new Set([...sessions, ...rows.map((row) => row.window), here])].sort();
  const now = (time) => (time === here ? "gl-here" : null);
  const number = (of) => of.filter((key) => came.has(key)).length;
  const total = (key, of, all) => h("td", { "data-key": key }, _("{n} of {total}", { n: number(of), total: all.length }));
  const head = (time) => h("th", { scope: "col", class: now(time), "data-key": time, "aria-current": time === here && "true" }, day(time), h("div", { class: "gl-small" }, hourOf(time)));
  const line = (name) =>
    h(
      "tr",
      { "data-key": name },
      h("th", { scope: "row" }, name),
      times.map((time) => h("td", { class: now(time), "data-key": time }, visit(came.get(`${time} ${name}`)))),
      total("all", times.map((time) => `${time} ${name}`), times),
    );
  return [
    h("h3", { class: "h6 mt-3", "data-key": "heading", id: "session-attendance" }, _("Attendance")),
    h(
      "div",
      { class: "gl-attendance", "data-key": "grid", role: "region", "aria-labelledby": "session-attendance", tabindex: "0" },
      h(
        "table",
        { class: "table table-sm" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, _("Who")), times.map(head), h("th", { scope: "col" }, _("Came")))),
        h("tbody", {}, names.map(line)),
        h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, _("Came")), times.map((time) => total(time, names.map((name) => `${time} ${name}`), names)), h("td", {}))),
      ),
    ),
    h("a", { href: address, download: "attendance.csv", "data-key": "csv" }, _("As CSV")),
  ];
}

/** When a person came, and for how long their GPU was busy. */
function visit(row) {
  if (!row) return [h("span", { class: "visually-hidden" }, _("did not come")), h("span", { "aria-hidden": "true" }, "–")];
  return [h("span", { class: "gl-came" }, hourOf(row.came)), h("div", { class: "gl-small" }, _("{time} in use", { time: duration(Number(row.busy_seconds)) }))];
}

/** The rows of a CSV with a header, as objects; a quoted field may hold commas and quotes. */
export function parseCSV(text) {
  const [names, ...rows] = text.trim().split(/\r?\n/).map((line) =>
    [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((found) => found[1]?.replaceAll('""', '"') ?? found[2]),
  );
  return rows.map((row) => Object.fromEntries(row.map((value, index) => [names[index], value])));
}
