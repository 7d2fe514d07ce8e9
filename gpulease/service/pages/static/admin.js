// The admin's page: every lease, and ending one with a reason that its student reads.
import * as api from "./api.js";
import { alertError, h, onAction, update } from "./dom.js";
import { showAudit } from "./audit.js";
import { showCharts } from "./charts.js";
import { showDevices } from "./devices.js";
import { ending } from "./ending.js";
import { drawer } from "./holder.js";
import { isLive, stateWord, tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { showMessages } from "./notices.js";
import { _ } from "./texts.js";
import { classesOverview, endedTable, liveTable } from "./table.js";
import { tabs } from "./tabs.js";
import { usageTable } from "./usage.js";

const SIZE = 25;
const live = new Live();
const toEnd = ending(live);
const ended = { offset: 0, total: 0, items: [] };
const FILTERS = { user: _("Person"), project: _("Project"), gpu_class: _("Class") };
let of = {}; // whose ended leases are shown: members of FILTERS; {} is everybody's
let offset = 0;
let count = -1;
const $ = (id) => document.getElementById(id);

const endButton = (lease) =>
  h("button", { type: "button", class: "btn btn-sm btn-outline-danger", "data-action": "open-end", "data-id": lease.id, "aria-label": _("End the lease of {user}", lease), "data-key": `end-${lease.id}`, disabled: lease.state === "draining" }, _("End…"));

const draw = drawer(() => {
  const leases = [...live.leases.values()].filter(isLive);
  if (leases.length !== count) {
    count = leases.length;
    readEnded();
  }
  const found = leases.filter(matches);
  if (offset >= found.length) offset = 0;
  update($("classes"), classesOverview(live.classes));
  update($("table"), liveTable(found, live.now(), { offset, size: SIZE, extra: endButton, empty: leases.length ? _("Nothing is found.") : _("Nobody has a GPU or waits for one.") }));
  $("simulated").hidden = !live.classes.some((item) => item.simulated);
});

/** Whether a lease has every word that is looked for, in its names or its state. */
function matches(lease) {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const devices = lease.devices.flatMap((device) => [device.name, device.uuid]);
  const text = [lease.user, lease.server, lease.gpu_class, lease.state, stateWord(lease), lease.project, ...devices].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

async function readUsage() {
  try {
    const by = $("usage-by").value;
    update($("usage"), usageTable((await api.get(`usage?by=${by}`)).items, by));
  } catch (error) {
    alertError(error);
  }
}

/** Show what a link asks for: of a person, a project or a class. */
function openHistory(wanted) {
  of = Object.fromEntries([...wanted].filter(([name]) => FILTERS[name]));
  readEnded(0);
}

function filterLine(chosen) {
  const [found] = Object.entries(chosen);
  if (!found) return null;
  return h("p", { class: "gl-actions", "data-key": "filter" }, h("span", {}, `${FILTERS[found[0]]}: `, h("strong", {}, found[1])), h("a", { class: "btn btn-sm btn-outline-contrast", href: "#history" }, _("Show all")));
}

async function readEnded(from = ended.offset) {
  try {
    const answer = await api.listLeases("ended", from, SIZE, of);
    Object.assign(ended, { offset: from, total: answer.total, items: answer.items });
    update($("ended"), filterLine(of), endedTable(ended, SIZE));
  } catch (error) {
    alertError(error);
  }
}

live.addEventListener("change", draw);
showLink(live);
showMessages(live);
everySecond(() => tick(live.now()));
onAction(document.body, (action, target) => {
  if (action === "open-end") toEnd.one(target.dataset.id);
  if (action === "audit-page") turnAudit(Number(target.dataset.offset));
  if (action === "page") readEnded(Number(target.dataset.offset));
  if (action === "live-page") {
    offset = Number(target.dataset.offset);
    draw();
  }
});
$("search").addEventListener("input", () => {
  offset = 0;
  draw();
});
$("usage-by").addEventListener("change", readUsage);
$("usage").addEventListener("click", (event) => event.target.closest("[data-opens]")?.closest("tr").querySelector("a")?.click());
showDevices($("devices"), live);
const turnAudit = showAudit($("audit"), $("audit-search"));
const readCharts = showCharts($("charts"), $("charts-hours"));
const OPENED = { usage: () => [readUsage(), readCharts()], history: openHistory, audit: () => turnAudit() };
tabs($("tabs"), (name, wanted) => OPENED[name]?.(wanted));
