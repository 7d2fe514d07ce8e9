// The instructor's page: one group by name, its calendar, messages to it, ending a lease.
import * as api from "./api.js";
import { alertError, h, meta, onAction, toast, update } from "./dom.js";
import { Booking } from "./booking.js";
import { drawer } from "./holder.js";
import { ending } from "./ending.js";
import { tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { showMessages } from "./notices.js";
import { filters, roster, rosterTable } from "./roster.js";
import { Session } from "./session.js";
import { classesOverview } from "./table.js";
import { _ } from "./texts.js";
import { timetable } from "./timetable.js";
import { uploading } from "./upload.js";
import { wall } from "./zones.js";

const REREAD = 60_000; // ms: windows open and close by themselves
const GATHER = 1_000; // ms: a class that begins takes its seats one after the other
const live = new Live();
const $ = (id) => document.getElementById(id);
const toEnd = ending(live);
let group = "";
let members = [];
let kind = "all";

/** What of the members goes when all is ended. */
function endable() {
  const others = new Set(members.filter((name) => name !== meta("user")));
  return [...live.leases.values()].filter((lease) => others.has(lease.user) && !["draining", "ended"].includes(lease.state));
}

const draw = drawer(() => {
  if (!live.ready) return;
  const entries = roster(members, live.leases.values());
  update($("classes"), classesOverview(live.classes));
  for (const dialog of [booking, upload]) dialog.offer(seats(), members.length);
  update($("filters"), group ? filters(entries, kind) : null);
  update($("table"), group ? rosterTable(entries, kind, live.now()) : null);
  $("end-all").disabled = !endable().length;
  $("simulated").hidden = !live.classes.some((item) => item.simulated);
});

/** The classes that can be reserved: whole GPUs. */
const seats = () => live.classes.filter((item) => !item.percent);
const booking = new Booking(() => calendar.refetchEvents());
const upload = uploading(() => calendar.refetchEvents());
const session = new Session({
  changed: () => calendar.refetchEvents(),
  edit: (reservation) => booking.open(group, reservation),
  members: () => members,
  copy: (reservation, one) => booking.open(group, { ...reservation, id: null, name: `${reservation.name}-copy`, start: one.local_start, end: one.local_end }),
});

// What was read last: a service that is away does not empty the calendar.
let reserved = [];
let closed = [];

async function read(since) {
  if (!group) return [];
  const query = new URLSearchParams({ group, since: since.toISOString(), limit: 200 });
  reserved = (await attempt(() => api.get(`reservations?${query}`)))?.items ?? reserved;
  session.follow(reserved);
  return reserved;
}

/** A window was dragged: it is moved, or goes back with the reason. */
async function move(reservation, one, times, undo) {
  try {
    await api.patch(`reservations/${reservation.id}`, { window: { at: one.at, ...times }, base_version: reservation.version });
    toast(_("{name} is moved.", reservation));
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    undo();
    alertError(error);
  }
  calendar.refetchEvents();
}

const calendar = timetable($("calendar"), {
  read,
  closures: async () => (closed = (await attempt(() => api.get("closures")))?.items ?? closed),
  onPick: (times) => booking.open(group, times),
  onOpen: (reservation, one) => session.open(reservation, one),
  onMove: move,
});

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    alertError(error);
    return null;
  }
}

async function choose(name) {
  group = name;
  members = [];
  reserved = [];
  const query = new URLSearchParams({ group });
  $("ics").href = `${meta("prefix")}api/reservations.ics?${query}`;
  calendar.refetchEvents();
  members = (await attempt(() => api.get(`groups/members?${query}`)))?.items ?? [];
  draw();
}

async function readGroups() {
  const found = await attempt(() => api.get("groups"));
  const names = (found?.items ?? []).map((item) => item.name);
  update($("group-choice"), names.map((name) => h("option", { value: name }, name)));
  $("group-row").hidden = names.length < 2;
  $("no-group").hidden = names.length > 0;
  $("group-parts").hidden = !names.length;
  if (names.length) {
    $("group-heading").textContent = names.length === 1 ? names[0] : _("Groups");
    await choose(names[0]);
  }
}

async function tell(event) {
  event.preventDefault();
  const text = $("message-text");
  const seconds = Number($("message-hours").value) * 3600;
  const told = await attempt(() => api.post("messages", { group, text: text.value.trim(), seconds }));
  if (!told) return;
  text.value = "";
  toast(_("Sent."));
}

let holding = "";
let gathering = null;

/** Seats of a window are taken and left with the leases: they are read anew soon after. */
function followSeats() {
  const before = holding;
  holding = [...live.leases.values()].filter((lease) => lease.active_since && lease.state !== "ended").map((lease) => lease.id).sort().join();
  if (holding === before || gathering !== null) return;
  gathering = setTimeout(() => {
    gathering = null;
    calendar.refetchEvents();
  }, GATHER);
}

live.addEventListener("change", draw);
live.addEventListener("change", followSeats);
showLink(live);
showMessages(live, (id) => attempt(() => api.del(`messages/${id}`, {})));
everySecond(() => tick(live.now()));
setInterval(() => document.hidden || calendar.refetchEvents(), REREAD);
document.addEventListener("gl-found", () => calendar.refetchEvents());
$("group-choice").addEventListener("change", (event) => choose(event.target.value));
$("message-form").addEventListener("submit", tell);
onAction(document.body, (action, target) => {
  if (action === "open-end") toEnd.one(target.dataset.id);
  if (action === "end-all") toEnd.all(group, endable().length);
  if (action === "withdraw") attempt(() => api.del(`messages/${target.dataset.id}`, {}));
  if (action === "reserve") {
    const start = new Date(Math.ceil(Date.now() / 3600_000) * 3600_000);
    booking.open(group, { start: wall(start), end: wall(new Date(start.getTime() + 2 * 3600_000)) });
  }
  if (action === "upload") upload.open(group);
  if (action === "filter") {
    kind = target.dataset.kind;
    draw();
  }
});
readGroups();
