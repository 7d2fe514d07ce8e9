// How the service itself is.  Shows what `api/health` says, part by part.
import * as api from "./api.js";
import { alertError, clearAlert, h, update } from "./dom.js";
import { badge } from "./lease.js";
import { capital } from "./words.js";

const EVERY = 10000; // ms
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

async function read() {
  try {
    update($("health"), facts(await api.get("health")));
    clearAlert();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    alertError(error);
  }
}

read();
setInterval(() => document.hidden || read(), EVERY);
