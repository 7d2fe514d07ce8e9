// The dialog that ends somebody's lease, with a reason that its holder reads.
import * as api from "./api.js";
import { alertError, announce, clearAlert, h } from "./dom.js";
import { _, _h } from "./texts.js";
import { theirServer } from "./words.js";

const $ = (id) => document.getElementById(id);

/** Wire the dialog of the page; returns what opens it for a lease. */
export function ending(live) {
  let lease = null;

  async function end(event) {
    event.preventDefault();
    const note = $("end-note").value.trim();
    if (!note) {
      $("end-note").setCustomValidity(_("Write a reason; the student reads it."));
      $("end-note").reportValidity();
      return;
    }
    $("end-submit").disabled = true;
    try {
      live.put(await api.end(lease.id, { note }));
      announce(_("The lease of {user} is being ended.", lease));
      clearAlert();
    } catch (error) {
      alertError(error);
    } finally {
      $("end-submit").disabled = false;
      $("end-dialog").close();
    }
  }

  $("end-form").addEventListener("submit", end);
  $("end-note").addEventListener("input", () => $("end-note").setCustomValidity(""));
  $("end-cancel").addEventListener("click", () => $("end-dialog").close());
  return (id) => {
    lease = live.leases.get(id);
    if (!lease) return;
    const filled = { who: h("strong", {}, lease.user), gpu: lease.gpu_class, server: theirServer(lease.server) };
    $("end-who").replaceChildren(...(lease.state === "queued" ? _h("{who} waits for {gpu} for {server}.", filled) : _h("{who} has {gpu} for {server}.", filled)));
    $("end-note").value = "";
    $("end-dialog").showModal();
    $("end-note").focus();
  };
}
