// Tables of leases for those who watch over others': the live ones from events, the ended ones
// page by page from REST.
import { cell, cellOf, h } from "./dom.js";
import { sentenceOf, simulatedBadge, since, stateBadge, theirEndWord, useMeter } from "./lease.js";
import { pager } from "./pager.js";
import { freeWords } from "./ask.js";
import { _, _n } from "./texts.js";
import { bytes, duration, percent, theirServer, when } from "./words.js";

const ORDER = { queued: 0, warned: 1, draining: 2, starting: 3, active: 4 };

const head = (names) => h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));

/** What is on offer and how much of it is taken: a card for each pool, whose classes share its devices. */
export function classesOverview(classes) {
  const pools = new Map(classes.map((item) => [item.pool ?? item.name, []]));
  for (const item of classes) pools.get(item.pool ?? item.name).push(item);
  return h("ul", { class: "gl-overview" }, [...pools].map(([pool, items]) => h("li", { class: "card", "data-key": pool }, h("div", { class: "card-body" }, ofPool(items)))));
}

/** One class, or one number for several that can have every device of their pool; else a line for each. */
function ofPool(items) {
  const [first, ...others] = items;
  const alike = others.every((item) => item.total === first.total && item.free === first.free);
  const title = (item) => [h("strong", {}, item.title || item.name), item.memory ? h("span", { class: "text-body-secondary" }, ` · ${bytes(item.memory)}`) : null];
  const used = (item) => _("{n} of {total}", { n: item.total - item.free - (item.reserved ?? 0), total: item.total });
  const badge = first.simulated ? [" ", simulatedBadge()] : null;
  const waiting = (item) => (item.queued ? _n("{n} waiting", "{n} waiting", item.queued) : "");
  if (!alike) {
    const line = (item) => h("div", { "data-key": item.name }, title(item), h("div", { class: "text-body-secondary" }, [_("{used} leased", { used: used(item) }), waiting(item)].filter(Boolean).join(" · ")));
    return [items.map(line), h("div", { class: "gl-small" }, _("These classes share GPUs."), badge)];
  }
  const each = others.length ? items.map((item) => h("div", { "data-key": item.name }, title(item), waiting(item) ? ` · ${waiting(item)}` : "")) : [title(first)];
  return [
    each,
    badge,
    h("div", { class: "gl-big" }, used(first), h("span", {}, ` ${_("leased")}`)),
    h("div", { class: "text-body-secondary" }, [others.length ? _("{free} of {total} available", first) : freeWords(first), others.length ? _("shared by these classes") : ""].filter(Boolean).join(" · ")),
  ];
}

/** Queue first (in its order), then what is about to leave, then the rest by who holds longest. */
export function sorted(leases) {
  return [...leases].sort(
    (a, b) =>
      ORDER[a.state] - ORDER[b.state] ||
      (a.position ?? 0) - (b.position ?? 0) ||
      (a.created < b.created ? -1 : a.created > b.created ? 1 : 0),
  );
}

function row(lease, now, extra) {
  const queued = lease.state === "queued";
  const use = queued || lease.state === "starting" ? "-" : useMeter(lease);
  const share = lease.busy_share;
  return h(
    "tr",
    { "data-key": lease.id, "data-state": lease.state },
    cell(_("Who"), h("strong", {}, lease.user), h("div", { class: "gl-small" }, theirServer(lease.server))),
    cell(_("GPU"), lease.gpu_class, lease.count > 1 ? ` × ${lease.count}` : "", lease.percent ? ` · ${lease.percent}%` : "", lease.devices.map((device) => h("div", { class: "gl-small", title: device.uuid }, device.name))),
    cell(_("State"), stateBadge(lease), queued && lease.position ? h("div", { class: "gl-small" }, _("place {n}", { n: lease.position })) : null, lease.detail ? h("div", { class: "gl-small", "data-key": "detail" }, lease.detail) : null),
    cell(_("How long"), since(queued ? lease.created : (lease.active_since ?? lease.created), now)),
    cellOf("use", _("Use"), use, share === undefined || share === null ? null : h("div", { class: "gl-small" }, _("in use {share} of its time", { share: percent(share) }))),
    cellOf("details", _("Details"), h("div", {}, sentenceOf(lease)), lease.next_step ? h("div", { class: "gl-small" }, lease.next_step) : null),
    extra ? cell("", extra(lease)) : null,
  );
}

/** Live leases, `size` a page; `extra` makes the last cell of a row. */
export function liveTable(leases, now, { offset, size, extra, empty }) {
  if (!leases.length) return h("p", { class: "text-body-secondary", "data-key": "empty" }, empty);
  const names = [_("Who"), _("GPU"), _("State"), _("How long"), _("Use"), _("Details")];
  const shown = sorted(leases).slice(offset, offset + size);
  return [
    h(
      "table",
      { class: "table gl-table", "data-key": "table" },
      h("caption", { class: "visually-hidden" }, _("Present leases and requests")),
      head(extra ? [...names, h("span", { class: "visually-hidden" }, _("Actions"))] : names),
      h("tbody", {}, shown.map((lease) => row(lease, now, extra))),
    ),
    pager({ offset, total: leases.length }, size, "live-page"),
  ];
}

function endedRow(lease) {
  const held = lease.active_since ? duration((Date.parse(lease.end.at) - Date.parse(lease.active_since)) / 1000) : _("never started");
  return h(
    "tr",
    { "data-key": lease.id },
    cell(_("When"), when(lease.end.at)),
    cell(_("Who"), h("strong", {}, lease.user), h("div", { class: "gl-small" }, theirServer(lease.server))),
    cell(_("GPU"), lease.gpu_class),
    cell(_("Held"), held),
    cell(_("Why"), theirEndWord(lease), lease.end.note ? h("div", { class: "gl-small" }, `“${lease.end.note}”`) : null, lease.detail ? h("div", { class: "gl-small" }, lease.detail) : null),
  );
}

/** One page of ended leases: `{offset, total, items}`. */
export function endedTable(list, size) {
  if (!list.total) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("None has ended yet."));
  return [
    h("table", { class: "table gl-table", "data-key": "table" }, h("caption", { class: "visually-hidden" }, _("Ended leases")), head([_("When"), _("Who"), _("GPU"), _("Held"), _("Why")]), h("tbody", {}, list.items.map(endedRow))),
    pager(list, size),
  ];
}
