// How the service itself is.  Shows what `api/health` says, part by part.
import * as api from "./api.js";
import { alertError, cell, clearAlert, h, onAction, update } from "./dom.js";
import { badge } from "./lease.js";
import { pager } from "./pager.js";
import { _ } from "./texts.js";
import { when } from "./words.js";

const EVERY = 10000; // ms
const SIZE = 20;
let offset = 0;
const $ = (id) => document.getElementById(id);
const STATES = { ok: _("ok"), up: _("up"), degraded: _("degraded"), error: _("error"), down: _("down") };
const COLOURS = { ok: "success", up: "success", degraded: "warning", error: "danger", down: "danger" };
const NAMES = {
  status: _("Status"),
  store: _("Database"),
  planning: _("Planning"),
  hub: _("Hub"),
  hubs: _("Further hubs"),
  provider: _("Where leases run"),
  policy_version: _("Policy version"),
  devices: _("Devices"),
  alerts: _("Alerts"),
  gaps: _("Gaps in the usage data"),
  pools: _("Pools"),
  version: _("Version"),
  simulated: _("Simulated"),
  device_problem: _("Problem with devices"),
  policy_pinned: _("Policy pinned to a file"),
  supervisors: _("Processes on GPUs"),
};
// What is empty where all is well.
const NOTHING = { device_problem: _("none") };

function value(what) {
  if (what === null || what === undefined || what === "") return "-";
  if (typeof what === "boolean") return what ? _("yes") : _("no");
  if (Array.isArray(what)) return what.length ? h("ul", { class: "mb-0 ps-3" }, what.map((one) => h("li", {}, value(one)))) : _("none");
  if (typeof what === "object") return value(Object.entries(what).map(([name, state]) => `${name}: ${state}`));
  return COLOURS[what] ? badge([STATES[what], COLOURS[what]]) : String(what);
}

const facts = (object) =>
  h(
    "dl",
    { class: "gl-health" },
    Object.entries(object).map(([name, one]) => h("div", { "data-key": name }, h("dt", {}, NAMES[name] ?? name), h("dd", {}, NOTHING[name] && !one ? NOTHING[name] : value(one)))),
  );

function incidents(answer) {
  if (!answer.total) return h("p", {}, _("None."));
  const rows = answer.items.map((item) =>
    h(
      "tr",
      { "data-key": `${item.lease}-${item.at}` },
      cell(_("When"), when(item.at)),
      cell(_("Whose"), h("strong", {}, item.user), h("div", { class: "gl-small" }, item.gpu_class)),
      cell(_("What"), h("div", {}, item.sentence), item.note ? h("div", { class: "gl-small" }, item.note) : null),
    ),
  );
  const head = h("thead", {}, h("tr", {}, [_("When"), _("Whose"), _("What")].map((name) => h("th", { scope: "col" }, name))));
  return h("div", {}, h("table", { class: "table gl-table" }, head, h("tbody", {}, rows)), pager(answer, SIZE));
}

// What each part that fails means for people, and what to do; the part's own words stand below.
const TROUBLES = {
  store: [_("The database does not take changes."), _("Nothing is granted or saved until it does; running leases continue. Check that it runs, has room and can be reached (`database_url`).")],
  planning: [_("No plan can be made."), _("Nobody is granted a GPU and nothing is reclaimed. The service's log has the error under this reference; an earlier policy can be restored on the page Policy.")],
  hub: [_("The hub does not answer the service."), _("Running leases continue; new requests are refused until it does. Check that the hub runs and that the service's token is still valid.")],
  device_problem: [_("The GPUs cannot be seen."), _("Running cells continue. Check the driver on this machine, or the cluster's API.")],
};

/** An alert, with what can be done about it here. */
function alert({ reason, lease, sentence }) {
  const back = reason === "stuck" ? h("button", { type: "button", class: "btn btn-sm btn-outline-secondary", "data-action": "put-back", "data-lease": lease }, _("Put back into service")) : null;
  return h("div", { class: "alert alert-warning", "data-key": `${reason} ${lease} ${sentence}` }, h("p", { class: "mb-1" }, sentence), back);
}

function troubles(found, alerts) {
  const named = Object.entries(TROUBLES).filter(([part]) => !["ok", "", null, undefined].includes(found[part]));
  const gaps = (found.gaps ?? []).map((sentence) => ({ reason: "gap", lease: "", sentence }));
  const listed = [...alerts, ...gaps];
  if (!named.length && !listed.length) return h("p", { class: "alert alert-success" }, _("Everything works."));
  const colour = found.status === "error" ? "danger" : "warning";
  return [
    named.map(([part, [what, todo]]) => h("div", { class: `alert alert-${colour}`, "data-key": part, "data-trouble": part }, h("p", { class: "mb-1" }, h("strong", {}, what)), h("p", { class: "mb-1" }, todo), h("p", { class: "gl-small mb-0" }, String(found[part])))),
    listed.map(alert),
  ];
}

async function read() {
  try {
    const found = await api.get("health");
    update($("troubles"), troubles(found, (await api.get("alerts")).items));
    update($("health"), facts(found));
    update($("incidents"), incidents(await api.get(`incidents?offset=${offset}&limit=${SIZE}`)));
    clearAlert();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    alertError(error);
    if (error.away) away(error);
  }
}

/** Nobody answers: what was read before says nothing about now. */
function away({ sentence }) {
  const todo = _("What runs keeps running; nothing is granted or released until it answers. Check that the service and the hub’s proxy run, and read the service’s log.");
  update($("troubles"), h("div", { class: "alert alert-danger", "data-trouble": "service" }, h("p", { class: "mb-1" }, h("strong", {}, sentence)), h("p", { class: "mb-0" }, todo)));
  update($("health"));
  update($("incidents"));
}

async function putBack(lease) {
  try {
    await api.post(`leases/${lease}/put-back`, {});
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    alertError(error);
    return;
  }
  read();
}

onAction(document.body, (action, target) => {
  if (action === "put-back") putBack(target.dataset.lease);
  if (action !== "page") return;
  offset = Number(target.dataset.offset);
  read();
});
read();
setInterval(() => document.hidden || read(), EVERY);
document.addEventListener("gl-found", read);
