// What is the reader's beside leases: the next reservation, and what is left of budgets.
import * as api from "./api.js";
import { alertError, h, update } from "./dom.js";
import { _, _n, locale } from "./texts.js";
import { about, when } from "./words.js";

const EVERY = 60_000; // ms

/** Keep `place` showing it; `live` has the service's clock. */
export function showMine(place, live) {
  async function read() {
    try {
      const [reservations, projects] = await Promise.all([api.get("reservations?limit=200"), api.get("projects")]);
      const [next] = windowsOf(reservations.items);
      const budgets = projects.items.filter((project) => project.mine && project.budget);
      place.hidden = !next && !budgets.length;
      update(place, next ? reserved(next, live.now()) : null, budgets.map((project) => budget(project)));
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.status) alertError(error); // that the service is away is said at the bottom
    }
  }
  read();
  setInterval(() => document.hidden || read(), EVERY);
  document.addEventListener("visibilitychange", () => document.hidden || read());
}

/** Every window that is not over, the soonest first, with its reservation. */
function windowsOf(reservations) {
  return reservations
    .flatMap((of) => of.windows.filter((one) => one.state !== "over").map((one) => ({ of, ...one })))
    .sort((a, b) => Date.parse(a.start) - Date.parse(b.start));
}

function reserved(one, now) {
  const name = one.of.title || one.of.name;
  const open = one.state === "open";
  const time = open ? _("until {end}", { end: when(one.end) }) : _("{start} to {end} ({about})", { start: when(one.start), end: when(one.end), about: about(one.start, now) });
  const left = one.seats - one.claimed;
  const seats = open ? _n("{left} of {n} seat left", "{left} of {n} seats left", one.seats, { left }) : _n("{n} seat", "{n} seats", one.seats);
  return h("p", { class: "gl-mine", "data-key": "reserved" }, h("strong", {}, open ? _("Reserved for you now:") : _("Next reserved:")), " ", _("{name}, {time}; {seats} of {gpu} for {group}.", { name, time, seats, gpu: one.of.gpu_class, group: one.of.group }), one.of.image ? [" ", _("Its image: {image}.", one.of)] : null);
}

function budget(project) {
  const { left, of, until, whose } = project.budget;
  const round = (hours) => hours.toLocaleString(locale, { maximumFractionDigits: 1 });
  const filled = { left: round(left), all: round(of), until: when(until) };
  const words = whose === "project" ? _("{left} of {all} GPU-hours left until {until}, for all of the project.", filled) : _("{left} of {all} GPU-hours left until {until}.", filled);
  return h(
    "p",
    { class: "gl-mine", "data-key": `budget-${project.name}` },
    h("strong", {}, `${project.title || project.name}: `),
    words,
    " ",
    h("progress", { class: "gl-meter", max: of, value: Math.max(0, left), "aria-label": _("Left of {project}", { project: project.title || project.name }) }),
  );
}
