// The dialog that ends somebody's lease, or all of a group, with a reason that its holder reads.
import * as api from "./api.js";
import { alertError, h, toast } from "./dom.js";
import { _, _h, _n } from "./texts.js";
import { theirServer } from "./words.js";

const $ = (id) => document.getElementById(id);

/** Wire the dialog of the page; returns what opens it: `one(id)` for a lease, `all(group, n)` for those of a group. */
export function ending(live) {
  let act = null; // ends what the dialog is open for, with the reason; resolves to what is said

  async function end(event) {
    event.preventDefault();
    const note = $("end-note").value.trim();
    if (!note) {
      $("end-note").setCustomValidity(_("Write a message to the student."));
      $("end-note").reportValidity();
      return;
    }
    $("end-submit").disabled = true;
    try {
      toast(await act(note));
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

  function open(heading, who, what, submit, cancel) {
    $("end-heading").textContent = heading;
    $("end-who").replaceChildren(...who);
    $("end-what").textContent = what;
    $("end-submit").textContent = submit;
    $("end-cancel").textContent = cancel;
    $("end-note").value = "";
    $("end-dialog").showModal();
    $("end-note").focus();
  }

  function one(id) {
    const lease = live.leases.get(id);
    if (!lease) return;
    act = async (note) => {
      live.put(await api.end(lease.id, { note }));
      return _("The lease of {user} is being ended.", lease);
    };
    const filled = { who: h("strong", {}, lease.user), gpu: lease.gpu_class, server: theirServer(lease.server) };
    const who = lease.state === "queued" ? _h("{who} waits for {gpu} on {server}.", filled) : _h("{who} has {gpu} on {server}.", filled);
    open(_("End this lease"), who, _("Its variables are saved to the notebook first, as far as the time for that allows. The notebook keeps running without a GPU."), _("End the lease"), _("Cancel"));
  }

  function all(group, n) {
    act = async (note) => {
      const { items } = await api.del("leases", { group, note });
      for (const lease of items) live.put(lease);
      return _n("{n} lease is being ended.", "{n} leases are being ended.", items.length);
    };
    const who = [_n("{n} lease or request of {group}’s members ends, but none of your own.", "{n} leases and requests of {group}’s members end, but none of your own.", n, { group })];
    open(_("End all leases of {group}?", { group }), who, _("Variables are saved to the notebooks first, as far as the time for that allows. The notebooks keep running without a GPU."), _("End them all"), _("Cancel"));
  }

  return { one, all };
}
