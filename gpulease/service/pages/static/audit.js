// Every change of a lease: who, when, why; found by words, page by page.
import * as api from "./api.js";
import { alertError, cell, h, update } from "./dom.js";
import { stateWord } from "./lease.js";
import { pager } from "./pager.js";
import { _ } from "./texts.js";
import { when } from "./words.js";

const SIZE = 25;
const BY = { planner: _("the planner") }; // among people
const WAIT = 300; // ms after the last key until the service is asked

/** Fill `place` from the audit by the words in `field`; returns what reads a page of it. */
export function showAudit(place, field) {
  let timer = null;
  let asked = 0;

  async function read(offset = 0) {
    const turn = ++asked;
    try {
      const answer = await api.get(`audit?q=${encodeURIComponent(field.value.trim())}&offset=${offset}&limit=${SIZE}`);
      if (turn === asked) update(place, table({ offset, total: answer.total, items: answer.items }));
    } catch (error) {
      alertError(error);
    }
  }
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(read, WAIT);
  });
  return read;
}

function table(list) {
  if (!list.total) return h("p", { class: "text-body-secondary", "data-key": "empty" }, _("Nothing is found."));
  const heads = [_("When"), _("Whose"), _("Change"), _("By"), _("Why")];
  const row = (item) =>
    h(
      "tr",
      { "data-key": `${item.lease}-${item.at}-${item.why}` },
      cell(_("When"), when(item.at)),
      cell(_("Whose"), h("strong", {}, item.user), h("div", { class: "gl-small" }, `${item.gpu_class}, ${item.lease}`)),
      cell(_("Change"), [...new Set([item.source, item.target])].filter(Boolean).map((state) => stateWord({ state })).join(" → ")),
      cell(_("By"), BY[item.who] ?? item.who),
      cell(_("Why"), item.sentence, h("code", { class: "gl-small d-block" }, item.why), item.note ? h("div", { class: "gl-small" }, `“${item.note}”`) : null),
    );
  return [
    h("table", { class: "table gl-table", "data-key": "table" }, h("caption", { class: "visually-hidden" }, _("Changes of leases")), h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, list.items.map(row))),
    pager(list, SIZE, "audit-page"),
  ];
}
