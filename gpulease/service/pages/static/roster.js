// The members of a group: who has a GPU, who waits, who has none yet.  Makes markup only.
import { cell, cellOf, h } from "./dom.js";
import { sentenceOf, since, stateBadge, useMeter } from "./lease.js";
import { _ } from "./texts.js";
import { duration, secondsUntil, theirServer } from "./words.js";

const HAS = new Set(["starting", "active", "warned", "draining"]);
const KINDS = [
  ["all", _("All")],
  ["has", _("With a GPU")],
  ["waits", _("Waiting")],
  ["had", _("Had one")],
  ["none", _("None yet")],
];

/** One entry a member: `{name, kind, leases, ended}`; those who need help first. */
export function roster(members, leases) {
  const mine = new Map(members.map((name) => [name, []]));
  for (const lease of leases) mine.get(lease.user)?.push(lease);
  return [...mine].map(([name, all]) => {
    const live = all.filter((lease) => lease.state !== "ended");
    const [ended] = all.filter((lease) => lease.end && lease.active_since).sort((a, b) => (a.end.at < b.end.at ? 1 : -1));
    const now = live.some((lease) => HAS.has(lease.state)) ? "has" : live.length ? "waits" : null;
    return { name, kind: now ?? (ended ? "had" : "none"), leases: live, ended };
  });
}

const numberOf = (entries, kind) => entries.filter((entry) => kind === "all" || entry.kind === kind).length;

/** Buttons that narrow the list; each says how many. */
export function filters(entries, chosen) {
  return h(
    "div",
    { class: "gl-filters", role: "group", "aria-label": _("Show"), "data-key": "filters" },
    KINDS.map(([kind, word]) =>
      h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": "filter", "data-kind": kind, "data-key": kind, "aria-pressed": String(kind === chosen) }, `${word} `, h("span", { class: "gl-count" }, numberOf(entries, kind))),
    ),
  );
}

function leaseCells(lease, now) {
  const waits = lease.state === "queued";
  const device = lease.devices.map((one) => one.name).join(", ");
  return [
    cell(_("GPU"), device || lease.gpu_class, lease.count > 1 && !device ? ` × ${lease.count}` : "", lease.percent ? ` · ${lease.percent}%` : "", h("div", { class: "gl-small" }, theirServer(lease.server))),
    cell(_("State"), stateBadge(lease), waits && lease.position ? h("div", { class: "gl-small" }, _("place {n}", { n: lease.position })) : null),
    cell(_("How long"), since(waits ? lease.created : (lease.active_since ?? lease.created), now)),
    cellOf("use", _("Use"), waits || lease.state === "starting" ? "-" : useMeter(lease)),
    cellOf("details", _("Details"), sentenceOf(lease)),
    cell("", endButton(lease)),
  ];
}

const endButton = (lease) =>
  h("button", { type: "button", class: "btn btn-sm btn-outline-danger", "data-action": "open-end", "data-id": lease.id, "data-key": `end-${lease.id}`, "aria-label": _("End the lease of {user}", lease), disabled: lease.state === "draining" }, _("End…"));

function noneCells(entry, now) {
  const had = entry.ended ? _("had a GPU until {time} ago", { time: duration(-secondsUntil(entry.ended.end.at, now)) }) : _("has had no GPU yet");
  return [cellOf("none", _("GPU"), "-"), cell(_("State"), h("span", { class: "badge text-bg-light border" }, _("None"))), cellOf("none", _("How long"), "-"), cellOf("none", _("Use"), "-"), cellOf("details", _("Details"), h("span", { class: "text-body-secondary" }, had)), h("td", {})];
}

function rows(entry, now) {
  const who = (more) => cell(_("Who"), h("strong", {}, entry.name), more);
  if (!entry.leases.length) return h("tr", { "data-key": entry.name, "data-kind": entry.kind }, who(null), noneCells(entry, now));
  return entry.leases.map((lease) => h("tr", { "data-key": lease.id, "data-kind": entry.kind, "data-state": lease.state }, who(null), leaseCells(lease, now)));
}

const ORDER = { waits: 0, has: 1, had: 2, none: 2 };

/** The table; `chosen` is one of the kinds. */
export function rosterTable(entries, chosen, now) {
  const shown = entries
    .filter((entry) => chosen === "all" || entry.kind === chosen)
    .sort((a, b) => ORDER[a.kind] - ORDER[b.kind] || (a.name < b.name ? -1 : 1));
  if (!shown.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, chosen === "all" ? _("The group has no members.") : _("Nobody."));
  const names = [_("Who"), _("GPU"), _("State"), _("How long"), _("Use"), _("Details")];
  return h(
    "table",
    { class: "table gl-table gl-roster", "data-key": "table" },
    h("caption", { class: "visually-hidden" }, _("Members of the group")),
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, _("Actions"))))),
    h("tbody", {}, shown.map((entry) => rows(entry, now))),
  );
}
