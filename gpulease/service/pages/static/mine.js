// What is the reader's beside leases: the next reservation, and what is left of budgets.
import * as api from "./api.js";
import { alertError, h, update } from "./dom.js";
import { _, _n } from "./texts.js";
import { about, hours, when } from "./words.js";

const EVERY = 60_000; // ms
const GATHER = 1_000; // ms: a class that begins takes its seats one after the other

/** Keep `place` showing it; `live` has the service's clock. */
export function showMine(place, live) {
  let found = { reservations: [], projects: [] };
  let gathering = null;

  function draw() {
    const [next] = windowsOf(found.reservations, live.now());
    const budgets = found.projects.filter((project) => project.mine && project.budget);
    place.hidden = !next && !budgets.length;
    update(place, next ? reserved(next, live) : null, budgets.map((project) => budget(project)));
  }

  async function read() {
    try {
      const [reservations, projects] = await Promise.all([api.get("reservations?limit=200"), api.get("projects")]);
      found = { reservations: reservations.items, projects: projects.items };
      draw();
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      alertError(error);
    }
  }

  /** Seats are taken and left with GPUs: they are read again soon after. */
  let seen = "";
  function follow() {
    const now = live.classes.map((item) => `${item.name} ${item.free} ${item.queued}`).join();
    if (now === seen || gathering !== null || document.hidden) return;
    seen = now;
    gathering = setTimeout(() => {
      gathering = null;
      read();
    }, GATHER);
  }
  live.addEventListener("change", follow);
  read();
  setInterval(draw, 1000); // a window that begins or ends is not told of
  setInterval(() => document.hidden || read(), EVERY);
  document.addEventListener("visibilitychange", () => document.hidden || read());
}

/** The windows in which the reader may have a seat and that are not over for them, the soonest first. */
function windowsOf(reservations, now) {
  return reservations
    .filter((of) => of.mine)
    .flatMap((of) => of.windows.filter((one) => Date.parse(one.end_for_you) > now).map((one) => ({ of, ...one })))
    .sort((a, b) => Date.parse(a.start) - Date.parse(b.start));
}

function reserved(one, live) {
  const now = live.now();
  const name = one.of.title || one.of.name;
  const open = Date.parse(one.start) <= now;
  const end = when(one.end_for_you);
  const time = open ? _("until {end}", { end }) : _("{start} to {end} ({about})", { start: when(one.start), end, about: about(one.start, now) });
  const left = Math.max(0, one.seats - one.claimed);
  const seats = open ? _n("{left} of {n} seat left", "{left} of {n} seats left", one.seats, { left }) : _n("{n} seat", "{n} seats", one.seats);
  return h("p", { class: "gl-mine", "data-key": "reserved" }, h("strong", {}, open ? _("Reserved for you now:") : _("Next reserved:")), " ", _("{name}, {time} · {seats} · {gpu}", { name, time, seats, gpu: live.classes.find((item) => item.name === one.of.gpu_class)?.title || one.of.gpu_class }), one.of.image ? [" · ", _("image {image}", one.of)] : null);
}

function budget(project) {
  const { left, of, until, whose } = project.budget;
  const filled = { left: hours(left), all: hours(of), until: when(until) };
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
