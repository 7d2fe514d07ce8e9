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

// What each part that fails means for people, and what to do; the part's own words stand below.
const TROUBLES = {
  store: ["The database does not take changes.", "Nothing is granted or saved until it does; running leases go on. Look whether it runs, has room and is reached (`database_url`)."],
  planning: ["No plan can be made.", "Nobody is granted a GPU and nothing is reclaimed. The service's log has the error under this reference; a policy that was just saved can be restored on the page Policy."],
  hub: ["The hub does not answer the service.", "Running leases go on; new requests are refused until it does. Look whether the hub runs and whether the service's token is still its own."],
  device_problem: ["The GPUs cannot be seen.", "What runs goes on. Look at the driver on this machine, or at the cluster's API."],
};

function troubles(found) {
  const named = Object.entries(TROUBLES).filter(([part]) => !["ok", "", null, undefined].includes(found[part]));
  const listed = [...(found.alerts ?? []), ...(found.gaps ?? [])];
  if (!named.length && !listed.length) return h("p", { class: "alert alert-success" }, "Everything works.");
  const colour = found.status === "error" ? "danger" : "warning";
  return [
    named.map(([part, [what, todo]]) => h("div", { class: `alert alert-${colour}`, "data-key": part, "data-trouble": part }, h("p", { class: "mb-1" }, h("strong", {}, what)), h("p", { class: "mb-1" }, todo), h("p", { class: "gl-small mb-0" }, String(found[part])))),
    listed.map((line) => h("div", { class: "alert alert-warning", "data-key": line }, line)),
  ];
}

async function read() {
  try {
    const found = await api.get("health");
    update($("troubles"), troubles(found));
    update($("health"), facts(found));
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
