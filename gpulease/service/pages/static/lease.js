// Shows one lease: what is happening, why, what comes next and when, what can be done now.
// Pure but for the elements it makes.  The sentences are the service's.
import { h } from "./dom.js";
import { sparks } from "./spark.js";
import { _, _n } from "./texts.js";
import { about, bytes, capital, clock, duration, localTimes, percent, secondsUntil, serverName, when } from "./words.js";

const STATES = {
  queued: [_("Waiting in the queue"), "secondary"],
  starting: [_("Starting"), "info"],
  active: [_("Active"), "success"],
  warned: [_("Ends soon"), "warning"],
  draining: [_("Saving variables"), "warning"],
  ended: [_("Ended"), "secondary"],
};

const VERDICTS = {
  busy: [_("In use"), "success"],
  quiet: [_("Cell running, GPU idle"), "warning"],
  idle: [_("Idle"), "secondary"],
};

const END_WORDS = {
  returned: _("released by you"),
  idle: _("it was idle"),
  preempted: _("somebody with a guarantee needed it"),
  expired: _("its time was over"),
  window_over: _("the reserved time was over"),
  withdrawn: _("you left the queue"),
  denied: _("it cannot be given"),
  failed: _("its process failed"),
  server_gone: _("your server stopped"),
  forced: _("an admin ended it"),
};

// The same of somebody else's lease.
const THEIR_END_WORDS = {
  ...END_WORDS,
  returned: _("released by its holder"),
  withdrawn: _("left the queue"),
  server_gone: _("the server stopped"),
};

// What became of the variables, by how the lease ended; "" where none had ever left home.
const HOME = _("The variables that GPU cells changed are in your notebook; any that could not be copied back are named there.");
const VARIABLES = {
  failed: _("Everything that was in your notebook already is intact. Names whose newest values were lost are marked in the notebook and say so when read."),
  server_gone: _("Variables live in the notebook's kernel and ended with your server. What a GPU cell could still save waits for the next lease of that notebook."),
  withdrawn: "",
  denied: "",
};

export const isLive = (lease) => lease.state !== "ended";
export const stateWord = (lease) => STATES[lease.state]?.[0] ?? lease.state;
const OF_RUNS = { ...END_WORDS, returned: _("it was released"), server_gone: _("the run ended") };
export const endWord = (lease, words = lease.run ? OF_RUNS : END_WORDS) => words[lease.end?.reason] ?? lease.end?.reason ?? "";
export const theirEndWord = (lease) => endWord(lease, THEIR_END_WORDS);

/** What is happening and why; the admin's note stands by itself, so it is not said twice. */
export function sentenceOf(lease) {
  const said = lease.state === "ended" ? (lease.end?.sentence ?? lease.sentence) : lease.sentence;
  const note = lease.end?.note ? " " + _("They wrote: {note}", lease.end) : "";
  return localTimes(note && said.endsWith(note) ? said.slice(0, -note.length) : said);
}

export function badge([text, colour]) {
  return h("span", { class: `badge text-bg-${colour}` }, text);
}

/** What a lease is doing, in one word that is the same wherever it is shown, and its colour. */
function status(lease) {
  if (lease.state === "active" && lease.verdict !== "unknown") return VERDICTS[lease.verdict] ?? [lease.verdict, "secondary"];
  if (lease.state === "warned" && ["idle", "quiet"].includes(lease.reason)) return [_("Idle warning"), "warning"];
  return STATES[lease.state] ?? [lease.state, "secondary"];
}

export const stateBadge = (lease) => badge(status(lease));
export const simulatedBadge = () => h("span", { class: "badge gl-simulated" }, _("simulated"));

/** A countdown that `tick` keeps going; a screen reader may ask for it but is not told each second. */
export function timer(iso, now, label, large = false) {
  return h(
    "span",
    { role: "timer", class: large ? "gl-clock" : "gl-timer", "data-until": iso, "aria-label": label },
    clock(secondsUntil(iso, now)),
  );
}

/** Bring every countdown in the page up to `now`. */
export function tick(now) {
  for (const element of document.querySelectorAll("[data-until]")) {
    const text = clock(secondsUntil(element.getAttribute("data-until"), now));
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    const text = duration(-secondsUntil(element.getAttribute("data-since"), now));
    if (element.textContent !== text) element.textContent = text;
  }
}

/** How long ago, kept going by `tick`. */
export const since = (iso, now) =>
  iso ? h("span", { "data-since": iso, title: when(iso) }, duration(-secondsUntil(iso, now))) : "-";

export function useMeter(lease) {
  if (lease.utilisation === null || lease.utilisation === undefined) return _("no data");
  return [
    h("progress", { class: "gl-meter", max: 1, value: lease.utilisation, "aria-label": _("GPU use") }),
    " ",
    h("span", { class: "gl-use-share" }, percent(lease.utilisation)),
  ];
}

function fact(name, ...value) {
  return h("div", { class: "gl-fact", "data-key": name }, h("dt", {}, name), h("dd", {}, ...value));
}

function devices(lease) {
  return lease.devices.map((device) =>
    h("div", { title: device.uuid }, device.name, device.memory ? ` · ${bytes(device.memory)}` : ""),
  );
}

function queuedFacts(lease, now) {
  return [
    fact(_("Place in the queue"), lease.position === 1 ? _("1 (next)") : (lease.position ?? _("not known yet"))),
    fact(_("Expected"), about(lease.expected_start, now), lease.expected_start ? ` (${when(lease.expected_start)})` : ""),
    ...(lease.expected_between?.length ? [fact(_("8 of 10 start between"), lease.expected_between.map(when).join(" – "))] : []),
    fact(_("Waiting for"), since(lease.created, now)),
  ];
}

function startingSteps(lease) {
  const at = lease.reason === "connecting" ? 2 : 1;
  const steps = [_("GPU assigned"), _("Starting a process on the GPU"), _("Connecting your notebook")];
  const mark = (index) => (index < at ? "done" : index === at ? "now" : "next");
  const words = { done: _("done"), now: _("now"), next: _("to come") };
  return h(
    "ol",
    { class: "gl-steps" },
    steps.map((step, index) =>
      h("li", { class: `gl-step-${mark(index)}`, "aria-current": index === at ? "step" : null }, step, h("span", { class: "visually-hidden" }, ` (${words[mark(index)]})`)),
    ),
  );
}

function activeFacts(lease, now) {
  return [
    lease.notebook ? fact(_("Notebook"), lease.notebook) : null,
    lease.devices.length ? fact(lease.devices.length > 1 ? _("Devices") : _("Device"), devices(lease)) : null,
    fact(_("Held for"), since(lease.active_since, now), lease.busy_share === null || lease.busy_share === undefined ? null : [" · ", _("in use {share} of its time", { share: percent(lease.busy_share) })]),
  ];
}

// What ends it next: the one time left that is shown of a lease.
const ENDINGS = {
  idle_warning: _("Idle warning in"),
  exam: _("The exam ends in"),
  seat: _("Your seat ends in"),
  reserved: _("Needed for a reservation in"),
  hard_limit: _("Hard limit in"),
  budget: _("GPU-hours used up in"),
};

// The way of a GPU that nobody uses: which step it is at, and what comes next, when.
const PHASES = [_("In use"), _("Idle"), _("Idle warning"), _("Released")];

function phaseOf(lease) {
  const at = { draining: 3, warned: 2 }[lease.state] ?? (lease.verdict === "idle" ? 1 : 0);
  return [at, status(lease)[0]];
}

function phases(lease, now) {
  const [at, name] = phaseOf(lease);
  const step = (word, index) =>
    index === at
      ? h("li", { class: "gl-phase-now", "aria-current": "step", "data-key": index }, h("span", { class: "gl-phase-name" }, name), nextOf(lease, now))
      : h("li", { "data-key": index }, word);
  return h("ol", { class: "gl-phases", "data-key": "phases" }, PHASES.map(step));
}

/** What ends the present step, and when. */
function nextOf(lease, now) {
  if (!lease.ends_at) return null;
  if (lease.state === "active") {
    const name = ENDINGS[lease.ends_by];
    return name ? h("span", { class: "gl-phase-next", "data-key": "next" }, name, " ", timer(lease.ends_at, now, name), ` (${when(lease.ends_at)})`) : null;
  }
  const words = lease.state === "warned" ? _("until this GPU is released") : _("at most, until it is done");
  return h("span", { class: "gl-countdown", "data-key": "countdown" }, timer(lease.ends_at, now, words, true), " ", h("span", {}, words));
}

function ended(lease) {
  const variables = lease.active_since ? (VARIABLES[lease.end?.reason] ?? HOME) : "";
  return [
    lease.end?.note
      ? h("blockquote", { class: "gl-note", "data-key": "note" }, h("span", { class: "gl-note-by" }, _("Message: ")), lease.end.note)
      : null,
    variables ? h("p", { "data-key": "variables" }, variables) : null,
  ];
}

// The service's sentence names the first three; here are all of them.
function leftBehind(lease) {
  const found = (lease.state === "ended" ? lease.end?.lost : lease.blockers) ?? [];
  if (found.length < 4) return null;
  return h(
    "details",
    { class: "gl-blockers", "data-key": "blockers" },
    h("summary", {}, lease.state === "ended" ? _n("{n} variable is lost", "{n} variables are lost", found.length) : _n("{n} variable cannot be copied back", "{n} variables cannot be copied back", found.length)),
    h("ul", {}, found.map((item) => h("li", {}, item.name ? h("code", {}, item.name) : null, item.name ? ": " : "", item.sentence))),
  );
}

function body(lease, now, readings) {
  switch (lease.state) {
    case "queued":
      return h("dl", { class: "gl-facts" }, queuedFacts(lease, now));
    case "starting":
      return startingSteps(lease);
    case "active":
    case "warned":
      return [phases(lease, now), sparks(lease, readings, now), h("dl", { class: "gl-facts", "data-key": "facts" }, activeFacts(lease, now))];
    case "draining":
      return phases(lease, now);
    default:
      return ended(lease);
  }
}

function button(action, id, text, style, more = {}) {
  return h("button", { type: "button", class: `btn ${style}`, "data-action": action, "data-id": id, "data-key": `${action}-${id}`, ...more }, text);
}

function keepButton(lease, busy) {
  if (lease.state !== "active" && lease.state !== "warned") return null;
  const { allowed, left, seconds, reason } = lease.keep;
  const style = lease.state === "warned" ? "btn-primary" : "btn-outline-contrast";
  const words = allowed ? _("Keep for {time}", { time: duration(seconds) }) : _("Keep");
  const hint = allowed ? _n("{n} time left", "{n} times left", left) : reason;
  return [
    button("keep", lease.id, words, style, { disabled: !allowed || busy, "aria-describedby": `keep-${lease.id}` }),
    h("span", { class: "gl-hint", id: `keep-${lease.id}`, "data-key": `keep-hint-${lease.id}` }, hint),
  ];
}

/** The words for a part of one card. */
export function partOf(title, percent) {
  return _("{title}, {percent}% of a card", { title, percent });
}

/** What was asked for is free, or more of it: a click moves the notebook there. */
function upgradeButton(lease, busy) {
  if (!lease.upgrade) return null;
  const { count, title, percent } = lease.upgrade;
  const what = percent ? partOf(title, percent) : count > 1 ? `${count} × ${title}` : title;
  return button("upgrade", lease.id, _("Move to {what}", { what }), "btn-primary", { disabled: busy });
}

/** Returning it would stop or lose something: what, and the two ways on. */
function returnAnyway(lease, busy, question) {
  const id = lease.id;
  const words = question ? _("Stop the cell and release the GPU") : _("Release it without them");
  return [
    question ? h("p", { class: "gl-question", role: "alert", "data-key": `question-${id}` }, question) : null,
    question ? button("stay", id, _("Keep the GPU"), "btn-primary", { disabled: busy }) : null,
    button("end-anyway", id, words, "btn-outline-danger", { disabled: busy }),
  ];
}

function actions(lease, busy, question, again) {
  const id = lease.id;
  if (question && (lease.state === "active" || lease.state === "warned")) return returnAnyway(lease, busy, question);
  switch (lease.state) {
    case "queued":
    case "starting":
      return button("end", id, lease.state === "queued" ? _("Leave the queue") : _("Cancel"), "btn-outline-contrast", { disabled: busy });
    case "active":
    case "warned":
      return [
        upgradeButton(lease, busy),
        keepButton(lease, busy),
        button("end", id, _("Release GPU"), "btn-outline-contrast", { disabled: busy }),
        lease.reason === "not_home" ? returnAnyway(lease, busy, "") : null,
      ];
    case "ended":
      return again && button("again", id, _("Request again"), "btn-primary", { disabled: busy });
    default:
      return null;
  }
}

function openServer(lease, url) {
  if (!isLive(lease) || !/^(https?:\/)?\//.test(url)) return null;
  return h("a", { class: "btn btn-link", href: url, target: "_top", "data-key": `open-${lease.id}` }, _("Open my server"));
}

/** What happens next, and when, in one line. */
export function statusLine(lease, now) {
  const { position } = lease;
  if (lease.state === "queued") return [position === 1 ? _("Next in line") : position ? _("Place {n} in the queue", { n: position }) : stateWord(lease), lease.expected_start ? about(lease.expected_start, now) : _("no estimate yet")].join(" · ");
  return nextOf(lease, now) ?? (sentenceOf(lease) || `${stateWord(lease)}.`);
}

/** What can be done with a lease: see `leaseBody`. */
export function leaseActions(lease, { busy = false, serverUrl = "", question = "", again = true }) {
  return h("div", { class: "gl-actions", "data-key": "actions" }, actions(lease, busy, question, again), openServer(lease, serverUrl));
}

/** What a lease says in one place: sentences, figures, what can be done.  `busy`: a call is on its way;
 * `question`: what the person must agree to before it is returned; `waiting`: how many want such a GPU;
 * `again`: whether it can be asked for again here, which the form for asking does otherwise;
 * `readings`: its use in the last ten minutes. */
export function leaseBody(lease, now, { waiting = 0, readings = [], ...options } = {}) {
  return [
    h("p", { class: "gl-sentence", "data-key": "sentence" }, sentenceOf(lease) || `${stateWord(lease)}.`),
    leftBehind(lease),
    body(lease, now, readings),
    lease.next_step ? h("p", { class: "gl-next", "data-key": "next" }, lease.next_step) : null,
    waiting && ["active", "warned"].includes(lease.state) ? h("p", { class: "gl-others", "data-key": "others" }, _n("{n} person waits for a GPU like yours. Release it when you are done.", "{n} people wait for a GPU like yours. Release it when you are done.", waiting)) : null,
    leaseActions(lease, options),
  ];
}

/** The whole card of a lease on the student page. */
export function leaseCard(lease, title, now, options) {
  return h(
    "section",
    { class: `card gl-lease gl-${lease.state}`, "data-key": lease.id, "data-state": lease.state, "aria-labelledby": `lease-${lease.id}` },
    h(
      "div",
      { class: "card-body" },
      h(
        "div",
        { class: "gl-lease-head", "data-key": "head" },
        h("h2", { class: "h4 mb-0", id: `lease-${lease.id}` }, lease.percent ? partOf(title, lease.percent) : title, lease.count > 1 ? ` × ${lease.count}` : ""),
        ["active", "warned", "draining"].includes(lease.state) ? null : stateBadge(lease), // its step says it
        lease.simulated ? simulatedBadge() : null,
        h("span", { class: "gl-server" }, _("on {server}", { server: serverName(lease.server) })),
      ),
      leaseBody(lease, now, options),
    ),
  );
}

/** What a screen reader is told when a lease changes state. */
export function spoken(lease) {
  return `${capital(status(lease)[0])}. ${sentenceOf(lease)} ${lease.end?.note ?? ""} ${lease.next_step}`.trim();
}
