// The calendar of a group's reservations: shows windows, and says what was dragged.
import { DayGrid, Interaction, List, TimeGrid, createCalendar } from "./lib/calendar.js";
import { h } from "./dom.js";
import { _, locale } from "./texts.js";
import { wall } from "./zones.js";

const NARROW = window.matchMedia("(max-width: 767.98px)");
const dark = () => document.documentElement.getAttribute("data-bs-theme") === "dark";
const STATES = { open: _("now"), lead: _("soon"), over: _("over"), coming: "" };

// Each lab has a colour in calendar, list and dialog: by its place among the group's names, which stays.
const COLOURS = 8;
const places = new Map();
export const labOf = ({ id }) => `gl-lab gl-lab-${(places.get(id) ?? 0) % COLOURS}`;

function paint(found) {
  const named = [...found].sort((a, b) => a.name.localeCompare(b.name, locale, { numeric: true }));
  places.clear();
  for (const [place, { id }] of named.entries()) places.set(id, place);
}

function shown(reservation, window_) {
  const local = (iso) => new Date(iso);
  return {
    id: `${reservation.id}@${window_.at}`,
    start: local(window_.start),
    end: local(window_.end),
    title: reservation.title || reservation.name,
    editable: reservation.manages && window_.state !== "over",
    startEditable: reservation.manages && ["coming", "lead"].includes(window_.state),
    durationEditable: reservation.manages && window_.state !== "over",
    className: `${labOf(reservation)} gl-window-${window_.state}`,
    extendedProps: { reservation, window: window_ },
  };
}

/** Days on which nothing is open: behind the windows, in the reader's own time. */
function closed({ first, last, title }) {
  const end = new Date(`${last}T00:00`);
  end.setDate(end.getDate() + 1);
  return { id: `closed@${first}`, start: new Date(`${first}T00:00`), end, title: _("Closed: {title}", { title }), display: "background", className: "gl-closed" };
}

// The month by its name: 11/10 is a day of October to some readers.
const DATE = { weekday: "short", day: "numeric", month: "short" };
// The reader's own clock: 7:19 PM or 19:19.
const TIME = { hour: "numeric", minute: "2-digit" };
const CLOCK = new Intl.DateTimeFormat(locale, TIME);

/** The calendar's own words, but of a window over midnight it says only what is in one day's column. */
function hours({ start, end }, timeText) {
  const overnight = start.toDateString() !== new Date(end.getTime() - 1).toDateString();
  return overnight ? `${CLOCK.format(start)} – ${CLOCK.format(end)}` : timeText;
}

function content({ event, timeText }) {
  const { reservation, window: window_ } = event.extendedProps;
  if (event.display === "background") return { domNodes: [h("span", { class: "gl-closed-title" }, event.title)] };
  if (!reservation) return undefined;
  const seats = ["open", "lead"].includes(window_.state) ? _("{n} of {total}", { n: window_.claimed, total: window_.seats }) : window_.seats;
  const less = window_.seats < window_.reserved ? h("span", { class: "gl-window-less" }, _(" ({n} reserved)", { n: window_.reserved })) : null;
  return {
    domNodes: [
      h("span", { class: "visually-hidden" }, event.start.toLocaleDateString(locale, { weekday: "long", day: "numeric", month: "long" }), " "),
      h("span", { class: "gl-window-time" }, hours(event, timeText)),
      h("strong", { class: "gl-window-title" }, event.title, STATES[window_.state] ? ` (${STATES[window_.state]})` : ""),
      h("span", { class: "gl-window-seats" }, `${seats} × ${reservation.gpu_class}`, less),
    ],
  };
}

// What a day's column opens at, and how many of its hours are seen then.
const DAY = "07:30";
const SEEN = 11;
const LEAD = 30 * 60_000; // ms seen before a window

/** Where a view opens that begins at `start`: at the reader's own day, or at the next window that is not in it. */
function opening(found, start, end) {
  const times = found.flatMap((each) => each.windows).map((one) => ({ ...one, from: new Date(one.start) }));
  const seen = times.filter(({ from }) => from >= start && from < end).sort((a, b) => a.from - b.from);
  const next = seen.find(({ state }) => state !== "over") ?? seen[0];
  if (!next) return null;
  const first = new Date(next.from);
  first.setHours(...DAY.split(":").map(Number), 0, 0);
  const inTheDay = next.from >= first && new Date(next.end) - first <= SEEN * 3600_000;
  const midnight = new Date(next.from).setHours(0, 0, 0, 0);
  return inTheDay ? DAY : wall(new Date(Math.max(midnight, next.from - LEAD))).slice(11);
}

/**
 * Make the calendar in `place`.
 *
 * `read(since)` gives reservations with their windows, `closures()` when nothing is open; `onPick({start, end})` gets wall-clock times
 * here, `onOpen(reservation, window)` a click, `onMove(reservation, window, {start, end}, undo)` a drag.
 */
export function timetable(place, { read, closures, onPick, onOpen, onMove }) {
  const moved = ({ event, revert }) => {
    const { reservation, window: window_ } = event.extendedProps;
    const times = { start: wall(event.start, reservation.zone), end: wall(event.end, reservation.zone) };
    onMove(reservation, window_, times, revert);
  };
  let opened = null; // the view that stands where its windows are: from then on only the reader scrolls it
  let top = DAY;
  const open = (found, start, end) => {
    if (opened === start.getTime()) return;
    const at = opening(found, start, end);
    if (at) opened = start.getTime();
    if (top === (at ?? DAY)) return;
    top = at ?? DAY;
    calendar.setOption("scrollTime", top);
  };
  const calendar = createCalendar(place, [TimeGrid, DayGrid, List, Interaction], {
    view: NARROW.matches ? "timeGridDay" : "timeGridWeek",
    headerToolbar: { start: "prev,next today", center: "title", end: "timeGridDay,timeGridWeek,dayGridMonth,listYear" },
    buttonText: { today: _("Today"), timeGridDay: _("Day"), timeGridWeek: _("Week"), dayGridMonth: _("Month"), listYear: _("Term") },
    // A term is half a year from today on, as a list that is read from top to bottom.
    views: {
      listYear: { duration: { weeks: 26 } },
      // Seven days share a telephone's width; screen readers hear the whole date all the same.
      timeGridWeek: { dayHeaderFormat: NARROW.matches ? { weekday: "short", day: "numeric" } : DATE },
      timeGridDay: { dayHeaderFormat: DATE },
    },
    noEventsContent: _("Nothing is reserved."),
    eventSources: [
      {
        events: async ({ start, end }) => {
          const [found, days] = await Promise.all([read(start), closures()]);
          open(found, start, end);
          paint(found);
          return [...days.map(closed), ...found.flatMap((each) => each.windows.map((one) => shown(each, one)))];
        },
      },
    ],
    lazyFetching: false,
    locale,
    firstDay: 1,
    height: NARROW.matches ? "28rem" : "40rem",
    scrollTime: DAY,
    allDaySlot: false,
    nowIndicator: true,
    selectable: true,
    editable: true,
    dayMaxEvents: true,
    slotEventOverlap: false,
    selectBackgroundColor: "var(--bs-primary-bg-subtle)",
    eventTimeFormat: TIME,
    slotLabelFormat: TIME,
    eventContent: content,
    select: ({ start, end, allDay }) => onPick(allDay ? workday(start) : { start: wall(start), end: wall(end) }),
    eventClick: ({ event }) => event.extendedProps.reservation && onOpen(event.extendedProps.reservation, event.extendedProps.window),
    eventDrop: moved,
    eventResize: moved,
  });
  plain(place);
  new MutationObserver(() => plain(place)).observe(place, { childList: true, subtree: true });
  // Two arrows without a word.
  for (const [button, word] of [["prev", _("Earlier")], ["next", _("Later")]]) {
    place.querySelector(`.ec-${button}`)?.setAttribute("aria-label", word);
  }
  const follow = () => place.classList.toggle("ec-dark", dark());
  new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  follow();
  return calendar;
}

// The calendar calls itself a table, and holds buttons and a toolbar where a table has rows: a screen
// reader would read it wrong.  Without the roles it reads headings and buttons, each with its day.
const ROLES = ["table", "rowgroup", "row", "cell", "columnheader", "rowheader", "list", "listitem"].map((role) => `[role=${role}]`).join();
const PLACES = ["col", "row"].flatMap((line) => ["index", "count", "span"].map((what) => `aria-${line}${what}`));

function plain(place) {
  for (const element of place.querySelectorAll(ROLES)) element.removeAttribute("role");
  for (const name of PLACES) {
    for (const element of place.querySelectorAll(`[${name}]`)) element.removeAttribute(name);
  }
  place.querySelector(".ec-main")?.setAttribute("tabindex", "0"); // it scrolls, by keys too
}

// A day of the month view says nothing of the hour: two hours after lunch are a beginning.
function workday(day) {
  const start = new Date(day);
  start.setHours(14, 0, 0, 0);
  return { start: wall(start), end: wall(new Date(start.getTime() + 2 * 3600_000)) };
}
