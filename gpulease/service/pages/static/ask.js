// The form that asks for a GPU.  Makes markup from what is on offer; asks nothing itself.
import { h } from "./dom.js";
import { simulatedBadge } from "./lease.js";
import { _, _n } from "./texts.js";
import { about, bytes, duration, serverName, when } from "./words.js";

/** "2 of 3 available", "0 of 3 available, 4 waiting". */
export function freeWords(item) {
  if (!item.total) return _("none here at present");
  const words = [_("{free} of {total} available", item)];
  if (item.reserved) words.push(_n("{n} reserved", "{n} reserved", item.reserved));
  if (item.queued) words.push(_n("{n} waiting", "{n} waiting", item.queued));
  return words.join(", ");
}

/** When a request made now may start, where none is free: "expected in about 12 min (14:32)". */
export function expectedWords(item, now) {
  if (item.free) return "";
  if (item.provision) return addedWords(item);
  if (!item.total) return "";
  if (!item.expected_start) return _("no estimate yet");
  return _("expected {about} ({time})", { about: about(item.expected_start, now), time: when(item.expected_start) });
}

/** What becomes of a request where machines are added for those that wait. */
function addedWords(item) {
  const words = { time: duration(item.provision) };
  return item.spot
    ? _("a machine is added for you, which usually takes {time}; it may be taken back at short notice", words)
    : _("a machine is added for you, which usually takes {time}", words);
}

/** What an hour of it takes off a budget, where classes differ in that. */
export function priceWords(item, classes) {
  if (!classes.some((one) => (one.price ?? 1) !== 1)) return "";
  return _n("an hour counts as {n} GPU-hour", "an hour counts as {n} GPU-hours", item.price ?? 1);
}

/** With which classes it shares its GPUs: what is free is free once. */
export function sharedWords(item, classes) {
  const names = classes.filter((one) => one.pool && one.pool === item.pool && one.name !== item.name).map((one) => one.title || one.name);
  return names.length ? _("same GPUs as {names}", { names: names.join(", ") }) : "";
}

function classOption(item, chosen, classes, now) {
  const id = `class-${item.name}`;
  return h(
    "div",
    { class: "gl-class", "data-key": id },
    h("input", { type: "radio", class: "form-check-input", name: "gpu_class", id, value: item.name, checked: item.name === chosen, "aria-describedby": `${id}-about` }),
    h("label", { for: id }, h("span", { class: "gl-class-title" }, item.title || item.name), item.simulated ? simulatedBadge() : null),
    h(
      "span",
      { class: "gl-class-about", id: `${id}-about` },
      item.percent && item.percent < 100 ? [partOfACard(item.percent), " · "] : "",
      item.memory ? `${bytes(item.memory)} · ` : "",
      h("span", { class: item.free ? "gl-free" : "gl-full" }, freeWords(item)),
      [sharedWords(item, classes), expectedWords(item, now), priceWords(item, classes)].filter(Boolean).map((words) => ` · ${words}`),
    ),
  );
}

function serverChoice(holder, chosen) {
  const servers = holder.freeServers();
  if (servers.length < 2) return h("input", { type: "hidden", name: "server", value: servers[0]?.name ?? "", "data-key": "server" });
  return h(
    "div",
    { class: "mb-3", "data-key": "servers" },
    h("label", { class: "form-label", for: "ask-server" }, _("For which server")),
    h(
      "select",
      { class: "form-select", id: "ask-server", name: "server" },
      servers.map((server) => h("option", { value: server.name, selected: server.name === chosen }, server.display_name || serverName(server.name))),
    ),
  );
}

/** How many, where a class gives one request more than one. */
export function countChoice(item, chosen) {
  const most = item?.max_count ?? 1;
  if (most < 2) return null;
  return h(
    "div",
    { class: "mb-3", "data-key": "count" },
    h("label", { class: "form-label", for: "ask-count" }, _("How many")),
    h("input", { class: "form-control gl-count", type: "number", id: "ask-count", name: "count", min: 1, max: most, step: 1, required: true, value: Math.min(chosen ?? 1, most), "aria-describedby": "ask-count-about" }),
    h("div", { class: "form-text", id: "ask-count-about" }, _n("At most {n} of this class in one request.", "At most {n} of this class in one request.", most)),
  );
}

function partOfACard(percent) {
  return _("{percent}% of a card", { percent });
}

/** Whether it may become smaller rather than end, where a class is a part of a card with steps. */
function stepChoice(item, chosen) {
  if (!item?.steps?.length) return null;
  return h(
    "div",
    { class: "mb-3", "data-key": "step" },
    h("label", { class: "form-label", for: "ask-step" }, _("When others need a part of it")),
    h(
      "select",
      { class: "form-select gl-count", id: "ask-step", name: "at_least" },
      h("option", { value: "", selected: !chosen }, _("Release all of it")),
      item.steps.map((step) => h("option", { value: String(step), selected: String(step) === chosen }, _("Continue with {percent}% of the card", { percent: step }))),
    ),
  );
}

const HOURS = [["", _("As long as I use it")], ["0.5", _("30 minutes")], ...[1, 2, 4, 8].map((n) => [String(n), _n("{n} hour", "{n} hours", n)])];

function hoursChoice(chosen) {
  return h(
    "div",
    { class: "mb-3", "data-key": "hours" },
    h("label", { class: "form-label", for: "ask-hours" }, _("For how long")),
    h("select", { class: "form-select gl-count", id: "ask-hours", name: "hours" }, HOURS.map(([value, words]) => h("option", { value, selected: value === chosen }, words))),
  );
}

/** What the click does, before it is made. */
function promise(holder, chosen, now) {
  if (holder.servers.length === 0) return _("Your server starts first; the GPU follows by itself.");
  const free = chosen && chosen.free > 0;
  if (free) return _("Your running notebook gets it in a moment. Cells that use a GPU library then run on the GPU, with all your variables.");
  const place = chosen?.queued ? _("You get place {n} in the queue", { n: chosen.queued + 1 }) : _("You get a place in the queue");
  const expected = chosen ? expectedWords(chosen, now) : "";
  return `${place}${expected ? `; ${expected}` : ""}. ${_("Your notebook keeps running meanwhile and gets the GPU by itself.")}`;
}

/** The first class that has something free, else the first. */
export function defaultClass(classes) {
  return (classes.find((item) => item.free > 0) ?? classes[0])?.name ?? null;
}

/** The words on the button. */
export function askWords(holder) {
  return holder.servers.length === 0 ? _("Start my server and get a GPU") : _("Request GPU");
}

/** The whole form.  `choice` holds what the person picked; `more`: they hold a lease already. */
export function askForm(classes, holder, choice, more, now) {
  const picked = classes.some((item) => item.name === choice.gpuClass) ? choice.gpuClass : defaultClass(classes);
  const item = classes.find((one) => one.name === picked);
  const heading = h("h2", { class: "h4", id: "ask-heading", "data-key": "heading" }, more ? _("Request one for another server") : _("Request a GPU"));
  if (!classes.length) return [heading, h("p", { "data-key": "empty" }, _("No GPU class is on offer. An admin can add one to the policy."))];
  return [
    heading,
    h(
      "form",
      { id: "ask-form", "data-key": "form" },
      h("fieldset", { class: "gl-classes mb-3", "data-key": "classes" }, h("legend", { class: "form-label fs-6" }, _("GPU class")), classes.map((one) => classOption(one, picked, classes, now))),
      countChoice(item, choice.count),
      stepChoice(item, choice.atLeast),
      hoursChoice(choice.hours),
      serverChoice(holder, choice.server),
      h("p", { class: "gl-next", "data-key": "promise" }, promise(holder, item, now)),
      h("button", { class: "btn btn-primary", type: "submit", "data-action": "ask", "data-key": "submit", disabled: holder.busy }, askWords(holder)),
    ),
  ];
}
