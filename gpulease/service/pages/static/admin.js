// The admin's page: every lease, and ending one with a reason that its student reads.
import * as api from "./api.js";
import { alertError, h, onAction, update } from "./dom.js";
import { ending } from "./ending.js";
import { drawer } from "./holder.js";
import { isLive, tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { showMessages } from "./notices.js";
import { classesOverview, endedTable, liveTable } from "./table.js";

const SIZE = 25;
const live = new Live();
const openEnd = ending(live);
const ended = { offset: 0, total: 0, items: [] };
let offset = 0;
let count = -1;
const $ = (id) => document.getElementById(id);

const endButton = (lease) =>
  h("button", { type: "button", class: "btn btn-sm btn-outline-danger", "data-action": "open-end", "data-id": lease.id, "aria-label": `End the lease of ${lease.user}`, "data-key": `end-${lease.id}`, disabled: lease.state === "draining" }, "End…");

const draw = drawer(() => {
  const leases = [...live.leases.values()].filter(isLive);
  if (leases.length !== count) {
    count = leases.length;
    readEnded();
  }
  if (offset >= leases.length) offset = 0;
  update($("classes"), classesOverview(live.classes));
  update($("table"), liveTable(leases, live.now(), { offset, size: SIZE, extra: endButton, empty: "Nobody holds a GPU or waits for one." }));
  $("simulated").hidden = !live.classes.some((item) => item.simulated);
});

async function readEnded(from = ended.offset) {
  try {
    const answer = await api.listLeases("ended", from, SIZE);
    Object.assign(ended, { offset: from, total: answer.total, items: answer.items });
    update($("ended"), endedTable(ended, SIZE));
  } catch (error) {
    alertError(error);
  }
}

live.addEventListener("change", draw);
showLink(live);
showMessages(live);
everySecond(() => tick(live.now()));
onAction(document.body, (action, target) => {
  if (action === "open-end") openEnd(target.dataset.id);
  if (action === "page") readEnded(Number(target.dataset.offset));
  if (action === "live-page") {
    offset = Number(target.dataset.offset);
    draw();
  }
});
