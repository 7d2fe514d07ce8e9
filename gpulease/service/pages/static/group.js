// The instructor's page: leases of the groups the reader leads.  Read only.
import { onAction, update } from "./dom.js";
import { drawer } from "./holder.js";
import { isLive, tick } from "./lease.js";
import { Live, everySecond, showLink } from "./live.js";
import { classesOverview, liveTable } from "./table.js";

const SIZE = 25;
const live = new Live();
let offset = 0;
const $ = (id) => document.getElementById(id);

const draw = drawer(() => {
  const leases = [...live.leases.values()].filter(isLive);
  update($("classes"), classesOverview(live.classes));
  update($("table"), liveTable(leases, live.now(), { offset, size: SIZE, empty: "Nobody of your groups holds a GPU or waits for one." }));
  $("simulated").hidden = !live.classes.some((item) => item.simulated);
});

live.addEventListener("change", draw);
showLink(live);
everySecond(() => tick(live.now()));
onAction(document.body, (action, target) => {
  if (action !== "live-page") return;
  offset = Number(target.dataset.offset);
  draw();
});
