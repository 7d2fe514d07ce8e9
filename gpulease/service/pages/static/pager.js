// Turns the pages of a list that grows.
import { h } from "./dom.js";
import { _ } from "./texts.js";

/** Earlier and later buttons (`data-action="page"`), or nothing where one page holds all. */
export function pager({ offset, total }, size, name = "page") {
  if (total <= size) return null;
  const last = Math.min(offset + size, total);
  const turn = (to, text, possible) =>
    h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": name, "data-offset": to, "data-key": text, disabled: !possible }, text);
  return h(
    "nav",
    { class: "gl-pager", "aria-label": _("Pages"), "data-key": "pager" },
    turn(Math.max(0, offset - size), _("Newer"), offset > 0),
    h("span", {}, _("{first} to {last} of {total}", { first: offset + 1, last, total })),
    turn(offset + size, _("Older"), last < total),
  );
}
