// What is the reader's beside leases: the next reservation, and what is left of budgets.
import * as api from "./api.js";
import { alertError, h, update } from "./dom.js";
import { about, count, when } from "./words.js";

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
  const time = open ? `now, until ${when(one.end)}` : `${when(one.start)} to ${when(one.end)} (${about(one.start, now)})`;
  const left = one.seats - one.claimed;
  const seats = open ? `${left} of ${count(one.seats, "seat", "seats")} left` : count(one.seats, "seat", "seats");
  return h("p", { class: "gl-mine", "data-key": "reserved" }, h("strong", {}, open ? "Reserved for you now: " : "Next reserved: "), `${name}, ${time}; ${seats} of ${one.of.gpu_class} for ${one.of.group}.`);
}

function budget(project) {
  const { left, of, until, whose } = project.budget;
  const round = (hours) => Number(hours.toFixed(1));
  const words = `${round(left)} of ${round(of)} GPU-hours left until ${when(until)}`;
  return h(
    "p",
    { class: "gl-mine", "data-key": `budget-${project.name}` },
    h("strong", {}, `${project.title || project.name}: `),
    words,
    whose === "project" ? ", for all of the project" : "",
    ". ",
    h("progress", { class: "gl-meter", max: of, value: Math.max(0, left), "aria-label": `Left of ${project.title || project.name}` }),
  );
}
