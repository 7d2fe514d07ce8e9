// What was used, by project and person.  Makes markup only.
import { cell, h, meta } from "./dom.js";
import { _ } from "./texts.js";
import { hours } from "./words.js";

/** Rows of the service's usage by project, the most used first, with a bar each. */
export function usageTable(rows) {
  const link = h("a", { href: `${meta("prefix")}api/usage.csv?by=project`, download: "usage.csv", "data-key": "csv" }, _("As CSV"));
  if (!rows.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("Nothing was used."));
  const most = Math.max(...rows.map((row) => row.gpu_hours), 0.1);
  const sorted = [...rows].sort((a, b) => b.gpu_hours - a.gpu_hours);
  const line = (row) =>
    h(
      "tr",
      { "data-key": row.project || "none" },
      cell(_("Project"), row.project || _("no project")),
      cell(_("GPU-hours"), hours(row.gpu_hours), row.estimated ? _(" (estimated)") : ""),
      cell(_("Device hours"), hours(row.hours)),
      cell("", h("progress", { class: "gl-meter", max: most, value: row.gpu_hours, "aria-label": _("Share of {project}", { project: row.project || _("no project") }) })),
    );
  const heads = [_("Project"), _("Charged GPU-hours"), _("Device hours")];
  return [
    h("table", { class: "table gl-table", "data-key": "table" }, h("caption", { class: "visually-hidden" }, _("Used by project")), h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, _("Share"))))), h("tbody", {}, sorted.map(line))),
    link,
  ];
}
