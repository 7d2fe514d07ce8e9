// The card on the hub's home page: the compact student page.  Where pages of people's servers could
// frame it, it changes nothing: it says how things stand and leads to the page where they are changed.
import { h, meta, onAction, update } from "./dom.js";
import { askWords, countChoice, defaultClass, expectedWords, freeWords, priceWords } from "./ask.js";
import { Holder, drawer } from "./holder.js";
import { leaseActions, stateBadge, statusLine, tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { showMine } from "./mine.js";
import { showMessages } from "./notices.js";
import { _ } from "./texts.js";
import { bytes, serverName } from "./words.js";

const live = new Live();
const holder = new Holder(live);
let chosen = null;
let count = null;
const acts = meta("card-acts") === "yes";
const $ = (id) => document.getElementById(id);

function leaseLine(lease, now) {
  const title = live.classes.find((item) => item.name === lease.gpu_class)?.title || lease.gpu_class;
  return h(
    "div",
    { class: "gl-card-lease", "data-key": lease.id, "data-state": lease.state },
    h("div", { class: "gl-lease-head", "data-key": "head" }, h("strong", {}, title), stateBadge(lease), h("span", { class: "gl-server" }, _("on {server}", { server: serverName(lease.server) }), lease.notebook ? ` · ${lease.notebook}` : ""), h("span", { class: "gl-card-status", "data-key": "status" }, statusLine(lease, now))),
    acts ? leaseActions(lease, { busy: holder.busy, serverUrl: holder.serverUrl(lease.server), question: holder.question(lease.id) }) : toPage(lease.state === "ended" ? _("Request again") : _("Keep it or release it")),
  );
}

const toPage = (words) => h("a", { class: "btn btn-primary", href: "./", target: "_top", "data-key": "to-page" }, words);

function classPicker(picked) {
  if (live.classes.length < 2) return null;
  return h(
    "div",
    { "data-key": "picker" },
    h("label", { class: "visually-hidden", for: "card-class" }, _("GPU class")),
    h(
      "select",
      { class: "form-select", id: "card-class" },
      live.classes.map((item) => h("option", { value: item.name, selected: item.name === picked }, `${item.title || item.name}: ${[freeWords(item), expectedWords(item, live.now()), priceWords(item, live.classes)].filter(Boolean).join(", ")}`)),
    ),
  );
}

const oneClass = (item) =>
  h("p", { class: "mb-0", "data-key": `class-${item.name}` }, h("strong", {}, item.title || item.name), item.memory ? ` · ${bytes(item.memory)}` : "", ": ", h("span", { class: item.free ? "gl-free" : "gl-full" }, freeWords(item)), [expectedWords(item, live.now()), priceWords(item, live.classes)].filter(Boolean).map((words) => ` · ${words}`));

function offer() {
  if (holder.servers === null) return h("p", { "data-key": "wait" }, _("Looking up your servers…"));
  if (!live.classes.length) return h("p", { "data-key": "empty" }, _("No GPU class is on offer at present."));
  const picked = live.classes.some((item) => item.name === chosen) ? chosen : defaultClass(live.classes);
  const item = live.classes.find((one) => one.name === picked);
  const several = holder.freeServers().length > 1;
  if (!acts) return h("div", { class: "gl-offer", "data-key": "offer" }, live.classes.map(oneClass), toPage(_("Request GPU")));
  return h(
    "div",
    { class: "gl-offer", "data-key": "offer" },
    classPicker(picked) ?? oneClass(item),
    several ? null : countChoice(item, count),
    several
      ? h("a", { class: "btn btn-primary", href: "./", target: "_top", "data-key": "choose" }, _("Request GPU: choose a server"))
      : h("button", { class: "btn btn-primary", type: "button", "data-action": "ask", "data-key": "ask", disabled: holder.busy }, askWords(holder)),
  );
}

function draw() {
  if (!live.ready) return;
  const now = live.now();
  const current = holder.current();
  const last = current.length ? null : holder.lastEnded();
  const shown = last ? [last] : current;
  update($("card"), shown.length ? shown.map((lease) => leaseLine(lease, now)) : offer());
  $("simulated").hidden = ![...live.classes, ...shown].some((item) => item.simulated);
}

// Never at once: a field that an update removes says "change" in the middle of that update.
const redraw = drawer(draw);
holder.addEventListener("change", redraw);
showLink(live);
showMessages(live);
showMine($("mine"), live);
everySecond(() => tick(live.now()));
holder.lookUpServers();
$("card").addEventListener("change", (event) => {
  if (event.target.id === "card-class") chosen = event.target.value;
  if (event.target.name === "count" && event.target.validity.valid) count = event.target.valueAsNumber;
  redraw();
});
function ask() {
  const field = $("ask-count");
  if (field && !field.reportValidity()) return;
  holder.ask(chosen ?? defaultClass(live.classes), holder.freeServers()[0]?.name ?? "", field?.valueAsNumber ?? 1);
}

onAction(document.body, (action, target) => {
  if (action === "ask") ask();
  else holder.act(action, target.dataset.id);
});

// The frame is as high as the card: same origin, so the card may say so itself.
new ResizeObserver(() => {
  const frame = window.frameElement;
  if (frame) frame.style.height = `${Math.ceil($("main").getBoundingClientRect().height) + 8}px`;
}).observe($("main"));
