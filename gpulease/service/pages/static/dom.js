// Builds and updates markup.  Owns the rule that data is only ever text: nothing here parses HTML,
// so a name or a note cannot become markup.  Knows nothing of leases.
import { _ } from "./texts.js";

/** Build an element.  `false`, `null` and `undefined` attributes and children are left out. */
export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** The same of a picture's element. */
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === false || child === null || child === undefined || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function syncAttributes(current, wanted) {
  for (const { name } of [...current.attributes]) {
    if (!wanted.hasAttribute(name) && !kept(current, name)) current.removeAttribute(name);
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (current.getAttribute(name) !== value) current.setAttribute(name, value);
  }
}

// What the person did to an element survives an update of it.
const kept = (element, name) => name === "open" && element.nodeName === "DETAILS";

function syncNode(current, wanted) {
  if (current.nodeType === Node.TEXT_NODE) {
    if (current.data !== wanted.data) current.data = wanted.data;
    return;
  }
  if (current.isEqualNode(wanted)) return;
  syncAttributes(current, wanted);
  syncChildren(current, [...wanted.childNodes]);
}

function syncChildren(parent, wanted) {
  const later = new Set(wanted.map(keyOf).filter((key) => key !== null));
  let cursor = parent.firstChild;
  for (const node of wanted) {
    later.delete(keyOf(node));
    const match = nextAlike(cursor, node);
    if (!match) {
      parent.insertBefore(node, cursor);
      continue;
    }
    // What stands before the match is gone, unless its key is wanted further on.  The match itself
    // is moved only then: moving an element takes the focus from it.
    while (cursor !== match && !later.has(keyOf(cursor))) cursor = removeAndNext(cursor);
    if (cursor === match) cursor = match.nextSibling;
    else parent.insertBefore(match, cursor);
    syncNode(match, node);
  }
  while (cursor) cursor = removeAndNext(cursor);
}

function nextAlike(from, node) {
  let found = from;
  while (found && !alike(found, node)) found = found.nextSibling;
  return found;
}

function removeAndNext(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

/** A cell of a table, which says its column's heading where there is no room for a row of them. */
export const cell = (label, ...value) => h("td", { "data-label": label }, h("div", {}, ...value));

/** The same with a name for the style, which no language changes. */
export function cellOf(column, label, ...value) {
  const made = cell(label, ...value);
  made.classList.add(`gl-cell-${column}`);
  return made;
}

/** Make `parent` hold `children`, touching only what differs: focus and selection stay. */
export function update(parent, ...children) {
  const holder = document.createElement("div");
  append(holder, children);
  syncChildren(parent, [...holder.childNodes]);
}

/** Call `action(name, element, event)` for clicks on anything with `data-action` in `root`. */
export function onAction(root, action) {
  root.addEventListener("click", (event) => {
    const target = event.target.closest("[data-action]");
    if (target && root.contains(target) && !target.disabled) {
      action(target.getAttribute("data-action"), target, event);
    }
  });
}

/** Say something once to a screen reader. */
export function announce(text) {
  const live = document.getElementById("gl-live");
  if (live && live.textContent !== text) live.textContent = text;
}

/** Show an error with its next step until it is dismissed or replaced, or the service answers again. */
export function alertError(error) {
  if (error.said) return;
  const place = document.getElementById("gl-alerts");
  const close = h("button", { class: "btn-close", type: "button", "aria-label": _("Dismiss") });
  close.addEventListener("click", () => update(place));
  place.replaceChildren(
    h(
      "div",
      { class: "alert alert-danger alert-dismissible", "data-reason": error.reason ?? "unknown", "data-away": error.away ?? false },
      h("strong", {}, error.sentence ?? error.message),
      error.nextStep ? [" ", error.nextStep] : null,
      close,
    ),
  );
}

const SEEN = 10_000; // ms until what went well is taken away

/** Say that something was done, where it is seen and heard. */
export function toast(text) {
  const said = h("div", { class: "alert alert-success" }, text);
  document.getElementById("gl-alerts").replaceChildren(said);
  setTimeout(() => said.remove(), SEEN);
  announce(text);
}

/** Take away what `alertError` shows. */
export function clearAlert() {
  document.querySelector("#gl-alerts .alert-danger")?.remove();
}

export const meta = (name) => document.querySelector(`meta[name="gpulease-${name}"]`)?.content ?? "";
