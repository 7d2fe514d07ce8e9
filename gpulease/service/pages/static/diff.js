// What differs between two texts, line by line.  Makes markup only.
import { h } from "./dom.js";
import { _ } from "./texts.js";

const AROUND = 2; // equal lines that are shown beside those that differ

/** Lines as `[mark, line]`: "-" only in `before`, "+" only in `after`, " " in both. */
export function lineChanges(before, after) {
  const [a, b] = [before, after].map((text) => text.trimEnd().split("\n"));
  // The longest common subsequence of what follows line i of one and j of the other.
  const longest = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) found.push(["-", a[i++]]);
    else found.push(["+", b[j++]]);
  }
  return found;
}

const KINDS = { "-": "gl-line-gone", "+": "gl-line-new", " ": null };

/** The lines that differ, each with its neighbours. */
export function diff(before, after) {
  const lines = lineChanges(before, after);
  const near = (at) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([mark]) => mark !== " ");
  const shown = lines.map((line, at) => (near(at) ? line : null));
  if (!shown.some(Boolean)) return h("p", { class: "gl-small" }, _("Nothing differs."));
  const cut = (at) => shown[at] === null && shown[at - 1] !== null;
  return h("pre", { class: "gl-side", tabindex: "0" }, shown.map((line, at) => (line ? h("span", { class: KINDS[line[0]] }, `${line.join(" ")}\n`) : cut(at) ? "…\n" : null)));
}
