// Turns the pages of a list that grows.
import { h } from "./dom.js";

/** Earlier and later buttons (`data-action="page"`), or nothing where one page holds all. */
export function pager({ offset, total }, size, name = "page") {
  if (total <= size) return null;
  const last = Math.min(offset + size, total);
  const turn = (to, text, possible) =>
    h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": name, "data-offset": to, "data-key": text, disabled: !possible }, text);
  return h(
    "nav",
    { class: "gl-pager", "aria-label": "Pages", "data-key": "pager" },
    turn(Math.max(0, offset - size), "Newer", offset > 0),
    h("span", {}, `${offset + 1}-${last} of ${total}`),
    turn(offset + size, "Older", last < total),
  );
}
