// The dialog that reserves: new, copied or changed; what is in the way is said while one types.
import * as api from "./api.js";
import { Checking } from "./checking.js";
import { announce, h, toast, update } from "./dom.js";
import { _, _n } from "./texts.js";
import { hours } from "./words.js";
import { HERE, span, zones } from "./zones.js";

const $ = (id) => document.getElementById(`book-${id}`);
const RULES = { weekly: "FREQ=WEEKLY", fortnightly: "FREQ=WEEKLY;INTERVAL=2", workdays: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR" };

const minutes = (text) => Date.parse(`${text}:00Z`) / 60_000;
const shifted = (text, by) => new Date((minutes(text) + by) * 60_000).toISOString().slice(0, 16);
const list = (text) => text.split(/[\s,;]+/).filter(Boolean);
const asMinutes = (seconds) => Math.round(seconds / 60);

/** What a person has beyond the end, by name, from "ada: 15, alan: 30". */
const extraParts = (text) => text.split(/[,;]/).map((part) => part.trim()).filter(Boolean).map((part) => [part, ...part.split(/\s*[:=]\s*|\s+/)]);
const MINUTES = /^\d+(\.\d+)?$/;
const TIME = /^(\d+(\.\d+)?[smhd]?)+$/; // 1h30m as well: how much it is, the service says

function readExtra(text) {
  return Object.fromEntries(extraParts(text).map(([, name, time = ""]) => [name, MINUTES.test(time) ? `${time}m` : time]));
}

/** The first of them that is no name with minutes: nothing that the service could be asked of. */
function wrongExtra(text) {
  const wrong = extraParts(text).find(([, name, time = "", ...more]) => !name || more.length || !TIME.test(time));
  return wrong ? { title: _("“{entry}” is not an extra time.", { entry: wrong[0] }), next_step: _("Write a user name and minutes, such as ada: 15.") } : null;
}

// The field in which one types each member of a reservation.
const FIELDS = { name: "name", title: "title", gpu_class: "class", seats: "seats", start: "start", end: "end", repeat: "every", zone: "zone", idle: "idle", named: "named", contact: "contact", managers: "managers", extra_time: "extra" };

/** What is wrong with the form, by the words beside its field: the service knows the body's members only. */
function inWords({ title, numbers }) {
  const found = numbers?.wrong?.[0];
  if (!found) return title;
  const [member, ...rest] = found.member.replace(/^reservations\.\d+\./, "").split(".");
  const input = FIELDS[member] && $(FIELDS[member]);
  if (!input) return title;
  const entry = rest.join("."); // a place in a list; of extra time whose it is
  const typed = entry && ` “${member === "extra_time" ? entry : list(input.value)[entry]}”`;
  return `${input.labels[0].firstChild.textContent.trim()}${typed}: ${found.problem}.`;
}

const asProblem = ({ reason, sentence, nextStep, numbers, passing }) => ({ reason, title: sentence, next_step: nextStep, numbers, passing });

/** The choice and count that a rule is, `["as-is", ""]` for one that the form cannot say. */
function readRule(rule) {
  if (!rule) return ["", 12];
  const count = /;COUNT=(\d+)$/.exec(rule);
  const name = count && Object.keys(RULES).find((each) => RULES[each] === rule.replace(count[0], ""));
  // The service writes a rule's parts in an order of its own.
  const parts = new Set(rule.split(";").filter((part) => !part.startsWith("COUNT=")));
  const same = Object.keys(RULES).find((each) => {
    const own = RULES[each].split(";");
    return own.length === parts.size && own.every((part) => parts.has(part));
  });
  const number = /COUNT=(\d+)/.exec(rule)?.[1];
  return (name || same) && number ? [name || same, Number(number)] : ["as-is", ""];
}

/** What is said of a reservation that fits: for whom it has no seat, what is left out, what may not be meant. */
export function beside({ skipped = [], notes = [], short }) {
  const lines = [...skipped.map((each) => _("Not on {time}: {why}", { time: each.start.replace("T", " "), why: each.why })), ...notes];
  return [short ? h("p", { class: "gl-fits-not" }, short.sentence, " ", short.next_step) : null, ...lines.map((line) => h("p", { class: "gl-small mb-1" }, line))];
}

/** Let `select` offer what can be reserved, and `wanted` where it is not among these (yet); says whether it shows another class then. */
export function offerClasses(select, classes, wanted = "") {
  const before = select.value;
  const option = (name, text) => h("option", { value: name, "data-key": name }, text);
  const known = classes.map((item) => option(item.name, _("{gpu} ({n} there)", { gpu: item.title || item.name, n: item.total })));
  update(select, wanted && !classes.some((item) => item.name === wanted) ? [...known, option(wanted, wanted)] : known);
  if (before) select.value = before; // nothing, where that is gone: the form asks for another
  return select.value !== before;
}

/** How many seats a new reservation has: one for each of `people`, as far as the chosen class has GPUs. */
export function defaultSeats(people, classes, name) {
  const total = classes.find((item) => item.name === name)?.total ?? people;
  return Math.max(1, Math.min(people, total));
}

export class Booking {
  /** `saved(reservation)` is called after a change. */
  constructor(saved) {
    this.saved = saved;
    this.changing = null; // the reservation that is changed; null for a new one
    this.group = "";
    this.classes = [];
    this.people = 1; // in the group
    this.wanted = ""; // the class that a reservation has which is changed or copied
    this.offers = {};
    this.checking = new Checking($("dialog"), {
      ask: () => this.#check(),
      show: (found) => this.#show(found),
      refused: (refusal) => this.#refuse(asProblem(refusal)),
    });
    update($("zones"), zones().map((zone) => h("option", { value: zone })));
    $("form").addEventListener("submit", (event) => this.#save(event));
    $("form").addEventListener("input", () => this.#soon());
    $("start").addEventListener("change", () => this.#keepLength());
    $("class").addEventListener("change", () => this.#seat());
    $("seats").addEventListener("input", () => {
      this.seated = true;
    });
    $("cancel").addEventListener("click", () => $("dialog").close());
    $("found").addEventListener("click", (event) => this.#take(event.target.closest("[data-offer]")));
  }

  /** Open for a new reservation of `group`, with what is known of it: times, or one to copy. */
  open(group, known = {}) {
    this.changing = known.id ? known : null;
    this.group = group;
    $("heading").textContent = this.changing ? _("Change {name}", known) : _("Reserve GPUs for {group}", { group });
    $("submit").textContent = this.changing ? _("Save") : _("Reserve");
    this.wanted = known.gpu_class ?? "";
    offerClasses($("class"), this.classes, this.wanted);
    this.#fill(known);
    update($("found"));
    $("submit").disabled = false;
    $("dialog").showModal();
    $("name").focus();
    this.checking.now();
  }

  /** What can be reserved, and for how many people: it may come, and change, while the dialog is open. */
  offer(classes, people) {
    Object.assign(this, { classes, people });
    if (!$("dialog").open) return;
    const before = $("seats").value;
    const another = offerClasses($("class"), classes, this.wanted);
    this.#seat();
    if (another || $("seats").value !== before) this.checking.now();
  }

  /** A seat for everybody, until somebody says another number. */
  #seat() {
    if (!this.seated) $("seats").value = defaultSeats(this.people, this.classes, $("class").value);
  }

  #fill(known) {
    const [every, times] = readRule(known.repeat);
    $("name").value = known.name ?? "";
    $("name").readOnly = Boolean(this.changing);
    $("title").value = known.title ?? "";
    if (this.wanted) $("class").value = this.wanted;
    this.seated = known.seats !== undefined;
    $("seats").value = known.seats ?? "";
    this.#seat();
    $("start").value = known.start ?? "";
    $("end").value = known.end ?? "";
    this.length = known.start ? minutes(known.end) - minutes(known.start) : 120;
    $("zone").value = known.zone ?? HERE;
    $("as-is").hidden = every !== "as-is";
    $("every").value = every;
    $("times").value = times;
    $("exam").checked = known.exam ?? false;
    $("named").value = (known.named ?? []).join(", ");
    $("contact").value = (known.contact ?? []).join(", ");
    $("managers").value = (known.managers ?? []).join(", ");
    $("extra").value = Object.entries(known.extra_time ?? {}).map(([name, seconds]) => `${name}: ${asMinutes(seconds)}`).join(", ");
    $("idle").value = known.idle ? asMinutes(known.idle) : "";
    // What the form has no field for goes with a copy.
    this.beyond = Object.fromEntries(["seats_per_person", "lead", "grace"].filter((name) => known[name] != null).map((name) => [name, known[name]]));
    $("more").open = known.exam || ["named", "contact", "managers", "extra", "idle"].some((name) => $(name).value) || $("zone").value !== HERE;
    this.#showTimes();
  }

  #showTimes() {
    $("times-row").hidden = !RULES[$("every").value];
  }

  #keepLength() {
    if ($("start").value) $("end").value = shifted($("start").value, this.length);
    this.#soon();
  }

  #soon() {
    this.#showTimes();
    $("submit").disabled = false; // it is another question now, and saving it asks as well
    if ($("start").value && $("end").value > $("start").value) this.length = minutes($("end").value) - minutes($("start").value);
    this.checking.soon();
  }

  #body() {
    const every = $("every").value;
    const body = {
      title: $("title").value.trim(),
      gpu_class: $("class").value,
      seats: $("seats").valueAsNumber,
      start: $("start").value,
      end: $("end").value,
      zone: $("zone").value.trim(),
      exam: $("exam").checked,
      named: list($("named").value),
      contact: list($("contact").value),
      managers: list($("managers").value),
      extra_time: readExtra($("extra").value),
      idle: $("idle").value ? $("idle").valueAsNumber * 60 : null,
    };
    if (every !== "as-is") body.repeat = RULES[every] ? `${RULES[every]};COUNT=${$("times").value || 1}` : "";
    return body;
  }

  #whole() {
    return { ...this.beyond, name: $("name").value.trim(), group: this.group, ...this.#body() };
  }

  async #check() {
    // Who has not named it yet wants to know of the time and the seats already.
    const wanted = { ...this.#whole(), name: $("name").value.trim() || "new" };
    if (!wanted.gpu_class || !wanted.start || !wanted.end || !wanted.seats) return null;
    const problem = wrongExtra($("extra").value);
    if (problem) return { fits: false, problem };
    return (await api.post("reservations/check", { reservations: [wanted] })).items[0];
  }

  #show({ fits, problem, reservation }) {
    if (!fits) return this.#refuse(problem);
    this.offers = {};
    $("found").dataset.fits = "true";
    $("submit").disabled = false;
    update($("found"), this.#fitting(reservation));
    announce(_("It fits."));
  }

  #refuse(problem) {
    const said = { ...problem, title: inWords(problem) };
    this.offers = problem.numbers?.offer ?? {};
    $("found").dataset.fits = "false";
    $("submit").disabled = !problem.passing; // what could not be asked may fit all the same
    update($("found"), this.#inTheWay(said));
    announce(said.title);
  }

  #fitting(reservation) {
    const { windows, gpu_hours_ahead: ahead, zone } = reservation;
    const last = span(windows.at(-1).local_start, windows.at(-1).local_end);
    const many = windows.length === 1 ? null : [_("{n} sessions, the last {span}.", { n: windows.length, span: last }), " "];
    return [
      h("p", { class: "gl-fits" }, h("strong", {}, _("It fits.")), " ", many, _n("{n} GPU-hour.", "{n} GPU-hours.", ahead, { n: hours(ahead) })),
      zone === HERE ? null : h("p", { class: "gl-small mb-1" }, _("Times are those of {zone}.", { zone })),
      ...beside(reservation),
    ];
  }

  #inTheWay(problem) {
    const { nearest, seats, classes = [] } = this.offers;
    const offer = (kind, value, text) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-offer": kind, "data-value": value, "data-key": `${kind}-${value}` }, text);
    return [
      h("p", { class: "gl-fits-not" }, problem.reason === "reservation_conflict" ? [h("strong", {}, _("It does not fit.")), " "] : null, problem.title),
      problem.next_step ? h("p", { class: "gl-small" }, problem.next_step) : null,
      h("div", { class: "gl-actions" }, nearest ? offer("nearest", nearest, _("Take {offer}", { offer: span(nearest, shifted(nearest, this.length)) })) : null, seats ? offer("seats", seats, _("Take {offer}", { offer: _n("{n} seat", "{n} seats", seats) })) : null, classes.map((name) => offer("class", name, _("Take {offer}", { offer: name })))),
    ];
  }

  #take(button) {
    if (!button) return;
    const { offer, value } = button.dataset;
    if (offer === "nearest") {
      $("start").value = value;
      $("end").value = shifted(value, this.length);
    } else {
      $(offer).value = value;
    }
    this.checking.now();
  }

  async #save(event) {
    event.preventDefault();
    const wrong = wrongExtra($("extra").value);
    if (wrong) return this.#refuse(wrong);
    $("submit").disabled = true;
    try {
      const { changing } = this;
      const saved = changing ? await api.patch(`reservations/${changing.id}`, { ...this.#body(), base_version: changing.version }) : await api.post("reservations", this.#whole(), { "Idempotency-Key": api.freshKey() });
      $("dialog").close();
      toast(_("{name} is reserved.", saved));
      this.saved(saved);
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      this.#refuse(asProblem(error)); // in the dialog: the page's own place for it is behind
    }
  }
}
