// The dialog that reserves what a calendar file holds: what fits is said before anything is done.
import * as api from "./api.js";
import { beside, defaultSeats, offerClasses } from "./booking.js";
import { Checking } from "./checking.js";
import { h, toast, update } from "./dom.js";
import { _, _n } from "./texts.js";
import { HERE } from "./zones.js";

const $ = (id) => document.getElementById(`upload-${id}`);

/** Wire the dialog of the page; returns what opens it for a group, and what tells it the classes. `done()` follows a change. */
export function uploading(done) {
  let group = "";
  let classes = [];
  let people = 1; // in the group

  async function bring(dryRun) {
    const file = $("file").files[0];
    const body = { calendar: await file.text(), group, gpu_class: $("class").value, seats: $("seats").valueAsNumber, zone: HERE, dry_run: dryRun };
    return api.post("reservations.ics", body);
  }

  function show(fits, lines) {
    $("found").dataset.fits = String(fits);
    update($("found"), lines);
    $("submit").disabled = !fits;
  }

  function line({ fits, problem, reservation }) {
    const said = fits ? _n("{n} session.", "{n} sessions.", reservation.windows.length) : `${problem.title} ${problem.next_step}`;
    return [h("p", { class: fits ? "mb-1" : "gl-fits-not mb-1" }, h("strong", {}, reservation.title || reservation.name), ": ", said), ...(fits ? beside(reservation) : [])];
  }

  function lines(found) {
    const { items, left_out: leftOut } = found;
    const others = leftOut.length ? [h("p", { class: "gl-hint mb-1" }, _("Left out: {events}.", { events: leftOut.join("; ") }))] : [];
    return [...items.map(line), ...others];
  }

  const refused = (error) => {
    if (!(error instanceof api.Refusal)) throw error;
    show(false, [h("p", { class: "gl-fits-not" }, error.sentence, " ", error.nextStep)]);
  };

  const checking = new Checking($("dialog"), {
    ask: async () => ($("file").files.length && $("class").value && $("seats").checkValidity() ? bring(true) : null),
    show: (found) => show(found.fits, lines(found)),
    refused,
  });

  async function save(event) {
    event.preventDefault();
    $("submit").disabled = true;
    try {
      const found = await bring(false);
      if (!found.done) {
        show(false, lines(found));
        return;
      }
      $("dialog").close();
      toast(_n("{n} reservation is made.", "{n} reservations are made.", found.items.length));
      done();
    } catch (error) {
      refused(error);
    }
  }

  $("form").addEventListener("submit", save);
  // Not "change": that comes as one clicks Reserve, which would be disabled under the pointer.
  $("form").addEventListener("input", () => {
    $("submit").disabled = true;
    checking.soon();
  });
  $("cancel").addEventListener("click", () => $("dialog").close());
  return {
    open(name) {
      group = name;
      $("form").reset();
      $("seats").value = defaultSeats(people, classes, $("class").value);
      update($("found"));
      $("submit").disabled = true;
      $("dialog").showModal();
      $("file").focus();
    },
    offer(offered, members) {
      [classes, people] = [offered, members];
      if (offerClasses($("class"), classes) && $("dialog").open) checking.now();
    },
  };
}
