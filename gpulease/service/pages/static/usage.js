// What was used, by project and person.  Makes markup only.
import { h, meta } from "./dom.js";

const hours = (value) => value.toLocaleString([], { maximumFractionDigits: 1 });

/** Rows of the service's usage by project, the most used first, with a bar each. */
export function usageTable(rows) {
  const link = h("a", { href: `${meta("prefix")}api/usage.csv?by=project`, download: "usage.csv", "data-key": "csv" }, "As CSV");
  if (!rows.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, "Nothing was used.");
  const most = Math.max(...rows.map((row) => row.gpu_hours), 1e-9);
  const sorted = [...rows].sort((a, b) => b.gpu_hours - a.gpu_hours);
  const cell = (label, ...value) => h("td", { "data-label": label }, h("div", {}, ...value));
  const line = (row) =>
    h(
      "tr",
      { "data-key": row.project || "none" },
      cell("Project", row.project || "no project"),
      cell("GPU-hours", hours(row.gpu_hours), row.estimated ? " (estimated)" : ""),
      cell("Device hours", hours(row.hours)),
      cell("", h("progress", { class: "gl-meter", max: most, value: row.gpu_hours, "aria-label": `Share of ${row.project || "no project"}` })),
    );
  const heads = ["Project", "GPU-hours at the class's price", "Device hours"];
  return [
    h("table", { class: "table gl-table", "data-key": "table" }, h("caption", { class: "visually-hidden" }, "Used by project"), h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Share")))), h("tbody", {}, sorted.map(line))),
    link,
  ];
}
