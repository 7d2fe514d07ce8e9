// How the service itself is.  Shows what `api/health` says, part by part.
import * as api from "./api.js";
import { alertError, clearAlert, h, onAction, update } from "./dom.js";
import { badge } from "./lease.js";
import { pager } from "./pager.js";
import { capital, when } from "./words.js";

const EVERY = 10000; // ms
const SIZE = 20;
let offset = 0;
const $ = (id) => document.getElementById(id);
const COLOURS = { ok: "success", up: "success", degraded: "warning", error: "danger", down: "danger" };
const words = (name) => capital(name.replaceAll("_", " "));

function value(what) {
  if (what === null || what === undefined || what === "") return "-";
  if (typeof what === "boolean") return what ? "yes" : "no";
  if (Array.isArray(what)) return what.length ? h("ul", { class: "mb-0 ps-3" }, what.map((one) => h("li", {}, value(one)))) : "none";
  if (typeof what === "object") return facts(what);
  return COLOURS[what] ? badge([what, COLOURS[what]]) : String(what);
}

const facts = (object) =>
  h(
    "dl",
    { class: "gl-health" },
    Object.entries(object).map(([name, one]) => h("div", { "data-key": name }, h("dt", {}, words(name)), h("dd", {}, value(one)))),
  );

function incidents(answer) {
  if (!answer.total) return h("p", {}, "None.");
  const cell = (label, ...what) => h("td", { "data-label": label }, h("div", {}, ...what));
  const rows = answer.items.map((item) =>
    h(
      "tr",
      { "data-key": `${item.lease}-${item.at}` },
      cell("When", when(item.at)),
      cell("Whose", h("strong", {}, item.user), h("div", { class: "gl-small" }, item.gpu_class)),
      cell("What", h("div", {}, item.sentence), item.note ? h("div", { class: "gl-small" }, item.note) : null),
    ),
  );
  const head = h("thead", {}, h("tr", {}, ["When", "Whose", "What"].map((name) => h("th", { scope: "col" }, name))));
  return h("div", {}, h("table", { class: "table gl-table" }, head, h("tbody", {}, rows)), pager(answer, SIZE));
}

async function read() {
  try {
    update($("health"), facts(await api.get("health")));
    update($("incidents"), incidents(await api.get(`incidents?offset=${offset}&limit=${SIZE}`)));
    clearAlert();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    alertError(error);
  }
}

onAction(document.body, (action, target) => {
  if (action !== "page") return;
  offset = Number(target.dataset.offset);
  read();
});
read();
setInterval(() => document.hidden || read(), EVERY);
