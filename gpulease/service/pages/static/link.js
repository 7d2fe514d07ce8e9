// How the page stands with the service: signed out, without a connection, or neither.  One line at
// the bottom says so.  Whoever asks or listens tells it here.
import { h, meta, update } from "./dom.js";
import { _ } from "./texts.js";

const lost = new Set(); // what finds nobody: "rest", "live"
let out = false;

function show() {
  const place = document.getElementById("gl-link");
  place.hidden = !out && !lost.size;
  document.body.classList.toggle("gl-stale", out || lost.size > 0);
  const card = window.top !== window; // inside the hub's page, which asks for the sign-in
  const again = h("a", { href: card ? `${meta("hub")}home` : window.location.href, target: "_top" }, _("Sign in again."));
  if (out) update(place, _("You have been signed out."), " ", again);
  else update(place, lost.size ? _("Connection lost. Reconnecting…") : null);
}

/** Whether what the page shows is what the service says now. */
export const linked = () => !out && !lost.size;

/** `what` finds nobody at the other end. */
export function lose(what) {
  const known = lost.has(what);
  lost.add(what);
  show();
  if (!known) document.dispatchEvent(new Event("gl-lost"));
}

/** `what` found the service. */
export function find(what) {
  if (!lost.delete(what)) return;
  show();
  if (!linked()) return;
  document.querySelector("#gl-alerts [data-away]")?.remove();
  document.dispatchEvent(new Event("gl-found"));
}

/** The log-in of this page is over: only loading it again helps. */
export function signOut() {
  if (out) return;
  out = true;
  show();
  document.dispatchEvent(new Event("gl-signed-out"));
}
