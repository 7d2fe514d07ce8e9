// The dialog that reserves: new, copied or changed; what is in the way is said while one types.
import * as api from "./api.js";
import { Checking } from "./checking.js";
import { alertError, announce, clearAlert, h, update } from "./dom.js";
import { _, _n } from "./texts.js";
import { HERE, span, zones } from "./zones.js";

const $ = (id) => document.getElementById(`book-${id}`);
const RULES = { weekly: "FREQ=WEEKLY", fortnightly: "FREQ=WEEKLY;INTERVAL=2", workdays: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR" };

const minutes = (text) => Date.parse(`${text}:00Z`) / 60_000;
const shifted = (text, by) => new Date((minutes(text) + by) * 60_000).toISOString().slice(0, 16);
const list = (text) => text.split(/[\s,;]+/).filter(Boolean);
const asMinutes = (seconds) => Math.round(seconds / 60);

/** What a person has beyond the end, by name, from "ada: 15, alan: 30"; the service says what is no time. */
function readExtra(text) {
  const each = text.split(/[,;]/).map((part) => part.trim()).filter(Boolean);
  return Object.fromEntries(each.map((part) => part.split(/\s*[:=]\s*|\s+/)).map(([name, time = ""]) => [name, /^[\d.]+$/.test(time) ? `${time}m` : time]));
}

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

export class Booking {
  /** `saved(reservation)` is called after a change. */
  constructor(saved) {
    this.saved = saved;
    this.changing = null; // the reservation that is changed; null for a new one
    this.group = "";
    this.offers = {};
    this.checking = new Checking($("dialog"), {
      ask: () => this.#check(),
      show: (found) => this.#show(found),
      refused: ({ sentence, nextStep, numbers, passing }) => this.#show({ fits: false, problem: { title: sentence, next_step: nextStep, numbers, passing } }),
    });
    update($("zones"), zones().map((zone) => h("option", { value: zone })));
    $("form").addEventListener("submit", (event) => this.#save(event));
    $("form").addEventListener("input", () => this.#soon());
    $("start").addEventListener("change", () => this.#keepLength());
    $("cancel").addEventListener("click", () => $("dialog").close());
    $("found").addEventListener("click", (event) => this.#take(event.target.closest("[data-offer]")));
  }

  /** Open for a new reservation of `group`, with what is known of it: times, or one to copy. */
  open(group, classes, known = {}) {
    this.changing = known.id ? known : null;
    this.group = group;
    $("heading").textContent = this.changing ? _("Change {name}", known) : _("Reserve GPUs for {group}", { group });
    $("submit").textContent = this.changing ? _("Save") : _("Reserve");
    update($("class"), classes.map((item) => h("option", { value: item.name }, _("{gpu} ({n} there)", { gpu: item.title || item.name, n: item.total }))));
    this.#fill(known);
    update($("found"));
    $("dialog").showModal();
    $("name").focus();
    this.checking.now();
  }

  #fill(known) {
    const [every, times] = readRule(known.repeat);
    $("name").value = known.name ?? "";
    $("name").readOnly = Boolean(this.changing);
    $("title").value = known.title ?? "";
    if (known.gpu_class) $("class").value = known.gpu_class;
    $("seats").value = known.seats ?? 1;
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
    if (!$("start").value || !$("end").value || !wanted.seats) return null;
    return (await api.post("reservations/check", { reservations: [wanted] })).items[0];
  }

  #show({ fits, problem, reservation }) {
    this.offers = problem?.numbers?.offer ?? {};
    $("found").dataset.fits = String(fits);
    update($("found"), fits ? this.#fitting(reservation) : this.#inTheWay(problem));
    announce(fits ? _("It fits.") : problem.title);
  }

  #fitting(reservation) {
    const { windows, gpu_hours_ahead: hours, zone } = reservation;
    const last = span(windows.at(-1).local_start, windows.at(-1).local_end);
    const many = windows.length === 1 ? null : [_("{n} windows, the last {span}.", { n: windows.length, span: last }), " "];
    return [
      h("p", { class: "gl-fits" }, h("strong", {}, _("It fits.")), " ", many, _n("{n} GPU-hour.", "{n} GPU-hours.", Math.round(hours))),
      zone === HERE ? null : h("p", { class: "gl-small mb-1" }, _("Times are those of {zone}.", { zone })),
      ...beside(reservation),
    ];
  }

  #inTheWay(problem) {
    const { nearest, seats, classes = [] } = this.offers;
    const offer = (kind, value, text) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-offer": kind, "data-value": value, "data-key": `${kind}-${value}` }, text);
    return [
      h("p", { class: "gl-fits-not" }, problem.passing ? null : [h("strong", {}, _("It does not fit.")), " "], problem.title),
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
    $("submit").disabled = true;
    try {
      const { changing } = this;
      const saved = changing ? await api.patch(`reservations/${changing.id}`, { ...this.#body(), base_version: changing.version }) : await api.post("reservations", this.#whole(), { "Idempotency-Key": api.freshKey() });
      $("dialog").close();
      clearAlert();
      announce(_("{name} is reserved.", saved));
      this.saved(saved);
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.reason.startsWith("reservation_")) this.#show({ fits: false, problem: { title: error.sentence, next_step: error.nextStep, numbers: error.numbers } });
      else alertError(error);
    } finally {
      $("submit").disabled = false;
    }
  }
}
