// The student's page: own leases, asking for one, earlier ones.
import * as api from "./api.js";
import { alertError, h, onAction, update } from "./dom.js";
import { askForm } from "./ask.js";
import { Holder, drawer } from "./holder.js";
import { endWord, leaseCard, tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { showMessages } from "./notices.js";
import { showMine } from "./mine.js";
import { pager } from "./pager.js";
import { Runs } from "./runs.js";
import { Readings } from "./spark.js";
import { _ } from "./texts.js";
import { clock, duration, secondsUntil, serverName, when } from "./words.js";

const PAGE = 10;
const live = new Live();
const holder = new Holder(live);
const choice = { gpuClass: null, server: null, count: null, hours: "" };
const history = { offset: 0, total: 0, items: [] };
const $ = (id) => document.getElementById(id);

function classTitle(name) {
  const found = live.classes.find((item) => item.name === name);
  return found?.title || name;
}

/** Which GPU it was, and what for. */
function whose(lease) {
  const gpu = classTitle(lease.gpu_class);
  return lease.run ? _("{gpu} for a background run", { gpu }) : _("{gpu} on {server}", { gpu, server: serverName(lease.server) });
}

/** How many wait for a GPU such as this lease's. */
const waitingFor = (lease) => live.classes.find((item) => item.name === lease.gpu_class)?.queued ?? 0;

function draw() {
  if (!live.ready) return;
  const now = live.now();
  const current = holder.current();
  const last = current.length ? null : holder.lastEnded();
  const shown = last ? [last] : current;
  const may = holder.mayAsk();
  const cards = shown.map((lease) => leaseCard(lease, classTitle(lease.gpu_class), now, { busy: holder.busy, serverUrl: holder.serverUrl(lease.server), question: holder.question(lease.id), waiting: waitingFor(lease), again: !may, readings: readings.of(lease) }));
  const nothing = h("p", { class: "text-body-secondary", "data-key": "none" }, _("You have no GPU. Your notebooks run on the CPU; they lose nothing when a GPU is assigned or released."));
  update($("leases"), cards.length ? cards : nothing);
  $("simulated").hidden = ![...live.classes, ...shown].some((item) => item.simulated);
  $("ask").hidden = !may;
  if (may) update($("ask"), askForm(live.classes, holder, { ...choice, gpuClass: choice.gpuClass ?? last?.gpu_class }, current.length > 0, now));
  drawHistory();
}

function drawHistory() {
  $("history").hidden = history.total === 0;
  const rows = history.items.map((lease) =>
    h(
      "li",
      { class: "list-group-item gl-history", "data-key": lease.id },
      h("span", { class: "gl-history-when" }, when(lease.end?.at ?? lease.created)),
      h("span", {}, whose(lease)),
      h("span", {}, lease.active_since && lease.end ? _("held {time}", { time: duration((Date.parse(lease.end.at) - Date.parse(lease.active_since)) / 1000) }) : _("never started")),
      h("span", { class: "text-body-secondary" }, _("ended: {why}", { why: endWord(lease) }), lease.end?.note ? ` (“${lease.end.note}”)` : ""),
    ),
  );
  update($("history-list"), h("ul", { class: "list-group list-group-flush" }, rows), pager(history, PAGE));
}

// A warning is seen in the tab's title too, where the page is not in front.
const plainTitle = document.title;
function showInTitle() {
  const warned = holder.current().find((lease) => lease.state === "warned");
  document.title = warned ? _("{time} left: GPU", { time: clock(secondsUntil(warned.ends_at, live.now())) }) : plainTitle;
}

async function readHistory(offset = history.offset) {
  try {
    const answer = await api.listLeases("ended", offset, PAGE, { mine: 1 });
    Object.assign(history, { offset, total: answer.total, items: answer.items });
    redraw();
  } catch (error) {
    alertError(error);
  }
}

const redraw = drawer(draw);
const readings = new Readings(live, redraw);
let liveCount = -1;
live.addEventListener("change", () => {
  const count = holder.current().length;
  if (count < liveCount || liveCount === -1) readHistory(0);
  liveCount = count;
});
holder.addEventListener("change", redraw);
showLink(live);
showMessages(live);
showMine($("mine"), live);
const runs = new Runs($("runs"), $("runs-list"));
everySecond(() => {
  tick(live.now());
  showInTitle();
});
holder.lookUpServers();

onAction(document.body, (action, target) => {
  if (runs.act(action, target.dataset)) return;
  if (action === "page") readHistory(Number(target.dataset.offset));
  else if (action !== "ask") holder.act(action, target.dataset.id);
});
for (const coming of ["pointerenter", "focusin"]) $("ask").addEventListener(coming, () => holder.lookAgain());
$("ask").addEventListener("change", (event) => {
  if (event.target.name === "gpu_class") choice.gpuClass = event.target.value;
  if (event.target.name === "server") choice.server = event.target.value;
  if (event.target.name === "count" && event.target.validity.valid) choice.count = event.target.valueAsNumber;
  if (event.target.name === "at_least") choice.atLeast = event.target.value;
  if (event.target.name === "hours") choice.hours = event.target.value;
  redraw();
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  holder.ask(form.get("gpu_class"), form.get("server") ?? "", Number(form.get("count") ?? 1), Number(form.get("hours")) * 3600, Number(form.get("at_least")));
});
