// One window of a reservation: what it is, who came, and what can be done with it.
import * as api from "./api.js";
import { attendance, parseCSV } from "./attendance.js";
import { alertError, announce, h, meta, onAction, toast, update } from "./dom.js";
import { _ } from "./texts.js";
import { labOf } from "./timetable.js";
import { duration, when } from "./words.js";
import { span } from "./zones.js";

const $ = (id) => document.getElementById(`session-${id}`);
const STATES = { coming: _("Upcoming"), lead: _("GPUs are being made available"), open: _("In progress"), over: _("Over") };
const EXTENSIONS = [15, 30, 60]; // minutes

export class Session {
  /** `changed()` after every change; `edit(reservation)`, `copy(reservation, window)` open the form; `members()` are the group's. */
  constructor({ changed, edit, copy, members }) {
    Object.assign(this, { changed, edit, copy, members, of: null, window: null });
    $("close").addEventListener("click", () => $("dialog").close());
    onAction($("dialog"), (action, target) => this.#act(action, target));
  }

  open(reservation, window_) {
    this.of = reservation;
    this.window = window_;
    this.came = null;
    this.asked = null; // the action that is asked about
    $("ask").textContent = "";
    this.#draw();
    $("dialog").showModal();
    if (["open", "over"].includes(window_.state) && reservation.manages) this.#readAttendance();
  }

  /** Reservations were read anew: what the open dialog says of its window is what they say now. */
  follow(reservations) {
    const of = reservations.find((each) => each.id === this.of?.id);
    const one = of?.windows.find((each) => each.at === this.window.at);
    if (!one || !$("dialog").open) return;
    Object.assign(this, { of, window: one });
    this.#drawAbout();
  }

  #draw() {
    this.#drawAbout();
    update($("actions"), this.of.manages ? this.#actions() : null);
    update($("confirm"), this.asked ? this.#confirm() : null);
    update($("came"), this.came);
  }

  #drawAbout() {
    const { of, window: one } = this;
    $("heading").textContent = of.title || of.name;
    $("heading").className = `h4 ${labOf(of)}`;
    const fact = (name, ...value) => h("div", { class: "gl-fact", "data-key": name }, h("dt", {}, name), h("dd", {}, ...value));
    const held = ["open", "lead"].includes(one.state);
    update(
      $("about"),
      h("p", { class: "gl-sentence" }, span(one.local_start, one.local_end), h("span", { class: "text-body-secondary" }, ` (${of.zone})`)),
      h("dl", { class: "gl-facts" }, fact(_("State"), STATES[one.state]), fact(_("Seats"), `${one.seats} × ${of.gpu_class}`, one.seats < one.reserved ? _(", {n} reserved", { n: one.reserved }) : ""), held ? fact(_("Taken"), _("{n} of {total}", { n: one.claimed, total: one.seats })) : null, one.first_gpus && one.state === "lead" ? fact(_("First GPU"), when(one.first_gpus)) : null, fact(_("Upcoming sessions"), of.windows_ahead), of.exam ? fact(_("Exam"), _("no GPU is taken away")) : null, of.image ? fact(_("Image"), h("code", { class: "text-break" }, of.image)) : null),
      of.manages ? h("dl", { class: "gl-facts" }, people(of).map(([name, value]) => fact(name, value))) : null,
    );
  }

  #actions() {
    const { of, window: one } = this;
    const button = (action, text, more = {}) => h("button", { type: "button", class: "btn btn-outline-contrast", "data-action": action, "data-key": `${action}-${more["data-minutes"] ?? ""}`, disabled: this.asked !== null, ...more }, text);
    const open = one.state === "open";
    const series = of.windows_ahead > 1;
    return [
      open ? EXTENSIONS.map((minutes) => button("extend", _("Extend {n} min", { n: minutes }), { "data-minutes": minutes })) : null,
      open ? button("end-now", _("End now")) : null,
      ["coming", "lead"].includes(one.state) && series ? button("cancel-one", _("Cancel this session")) : null,
      button("edit", series ? _("Change the series…") : _("Change…")),
      button("copy", _("Copy…")),
      of.windows_ahead ? button("cancel", series ? _("Cancel the series") : _("Cancel"), { class: "btn btn-outline-danger" }) : null,
    ];
  }

  /** The answers to what is asked: below the buttons, so that a second click in one place does nothing. */
  #confirm() {
    const series = this.of.windows_ahead > 1;
    const words = { cancel: series ? _("Cancel the series") : _("Cancel this reservation"), "end-now": _("End now"), "cancel-one": _("Cancel this session") };
    const button = (action, style, text) => h("button", { type: "button", class: `btn ${style}`, "data-action": action, "data-key": action }, text);
    return [button("stay", "btn-outline-contrast", _("Keep it")), button("confirm", "btn-danger", words[this.asked])];
  }

  #ask(action, question) {
    this.asked = action;
    $("ask").textContent = question;
    this.#draw();
    if (action) $("confirm").firstElementChild.focus();
  }

  #act(chosen, target) {
    const { of, window: one } = this;
    const asks = { cancel: _("Cancel {name}? Its GPUs go to others.", of), "end-now": _("End {name} now? Its GPUs go to others.", of), "cancel-one": _("Cancel this session? Its GPUs go to others.") };
    if (asks[chosen]) return this.#ask(chosen, asks[chosen]);
    if (chosen === "stay") return this.#ask(null, "");
    const action = chosen === "confirm" ? this.asked : chosen;
    if (action === "edit") this.#leave(() => this.edit(of));
    if (action === "copy") this.#leave(() => this.copy(of, one));
    if (action === "extend") this.#patch({ at: one.at, end: later(one.local_end, Number(target.dataset.minutes)) });
    if (action === "end-now") this.#patch({ at: one.at, end_now: true });
    if (action === "cancel-one") this.#patch({ at: one.at, cancelled: true });
    if (action === "cancel") this.#do(() => api.del(`reservations/${of.id}`, {}));
  }

  #leave(next) {
    $("dialog").close();
    next();
  }

  #patch(change) {
    return this.#do(() => api.patch(`reservations/${this.of.id}`, { window: change, base_version: this.of.version }));
  }

  async #do(work) {
    this.#ask(null, "");
    try {
      await work();
      $("dialog").close();
      toast(_("Done."));
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      $("ask").textContent = `${error.sentence} ${error.nextStep}`.trim();
      announce(error.sentence);
    }
    this.changed();
  }

  async #readAttendance() {
    const { of, window: one } = this;
    const path = `reservations/${of.id}/attendance.csv`;
    try {
      const rows = parseCSV(await api.text(path));
      if (this.window.at !== one.at || this.of.id !== of.id) return;
      const people = of.named?.length ? of.named : this.members();
      const sessions = of.windows.filter(({ state }) => ["open", "over"].includes(state)).map((each) => each.local_start);
      this.came = attendance({ people, sessions, rows, here: one.local_start, address: `${meta("prefix")}api/${path}` });
      this.#draw();
    } catch (error) {
      alertError(error);
    }
  }
}

/** Whom it is for, who may change it and who is told: what those who manage it read. */
function people({ group, named = [], extra_time: extra = {}, managers = [], contact = [], idle }) {
  const times = Object.entries(extra).map(([name, seconds]) => `${name}: ${duration(seconds)}`);
  return [
    [_("Only for"), named.join(", ") || _("everybody in {group}", { group })],
    [_("Extra time"), times.join(", ")],
    [_("Co-managers"), managers.join(", ")],
    [_("Mail is sent to"), contact.join(", ")],
    [_("Idle time-out"), idle === null || idle === undefined ? "" : duration(idle)],
  ].filter(([, value]) => value);
}

const later = (wallTime, minutes) => new Date(Date.parse(`${wallTime}:00Z`) + minutes * 60_000).toISOString().slice(0, 16);
