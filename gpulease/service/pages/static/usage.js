// What was used, by project, person, class or day.  Makes markup only.
import { cell, h, meta } from "./dom.js";
import { _ } from "./texts.js";
import { hours } from "./words.js";

const TITLES = { project: _("Project"), person: _("Person"), class: _("Class"), day: _("Day") };
// What the history of leases can be narrowed to.
const FILTERS = { project: "project", person: "user", class: "gpu_class" };
const nameOf = (row, by) => row[by] || (by === "project" ? _("no project") : "-");

/** What a row is of, as a link to its leases. */
function leases(row, by) {
  if (!row[by] || !FILTERS[by]) return nameOf(row, by);
  return h("a", { href: `#history?${new URLSearchParams({ [FILTERS[by]]: row[by] })}`, title: _("Show its leases") }, row[by]);
}

/** Rows of the service's usage with a bar each: the most used first, but days in their order. */
export function usageTable(rows, by) {
  const link = h("a", { href: `${meta("prefix")}api/usage.csv?by=${by}`, download: "usage.csv", "data-key": "csv" }, _("As CSV"));
  if (!rows.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("Nothing was used."));
  const most = Math.max(...rows.map((row) => row.gpu_hours), 0.1);
  const sorted = [...rows].sort((a, b) => (by === "day" ? (a.day < b.day ? 1 : -1) : b.gpu_hours - a.gpu_hours));
  const line = (row) =>
    h(
      "tr",
      { "data-key": row[by] || "none" },
      cell(TITLES[by], leases(row, by)),
      cell(_("GPU-hours"), hours(row.gpu_hours), row.estimated ? _(" (estimated)") : ""),
      cell(_("Device hours"), hours(row.hours)),
      h("td", { "data-label": "", "data-opens": by in FILTERS }, h("progress", { class: "gl-meter", max: most, value: row.gpu_hours, "aria-label": _("Share of {name}", { name: nameOf(row, by) }) })),
    );
  const heads = [TITLES[by], _("Charged GPU-hours"), _("Device hours")];
  return [
    h("table", { class: "table gl-table", "data-key": "table" }, h("caption", { class: "visually-hidden" }, _("Use in the last 30 days")), h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, _("Share"))))), h("tbody", {}, sorted.map(line))),
    link,
  ];
}
