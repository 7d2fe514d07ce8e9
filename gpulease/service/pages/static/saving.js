// The dialog before another policy counts: what changes, and for whom.
import { h, update } from "./dom.js";
import { _, _n } from "./texts.js";

const $ = (id) => document.getElementById(`save-${id}`);

export const changeList = (title, changes) => (changes.length ? [h("h3", { class: "h6" }, title), h("ul", {}, changes.map((change) => h("li", {}, change)))] : []);

/** What a check says that a policy would do, as two lists. */
export function whatChanges(changes, { warned = 0, effects = [] }) {
  const now = warned ? [_n("{n} running lease would be warned now.", "{n} running leases would be warned now.", warned)] : [];
  return [...changeList(_("What changes"), changes), ...changeList(_("For whom"), [...now, ...effects])];
}

/** Ask whether it is done; `lost`: what somebody typed elsewhere that is dropped by it. */
export function asked({ heading, submit, about, lost = "" }) {
  const dialog = $("dialog");
  $("heading").textContent = heading;
  $("submit").textContent = submit;
  update($("about"), about.length ? about : h("p", {}, _("Nothing changes.")), lost ? h("p", { class: "text-danger-emphasis", id: "save-lost" }, lost) : null);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "save"), { once: true });
  });
}
