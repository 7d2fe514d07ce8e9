// The reader's runs: whole notebooks that are executed without them.
import * as api from "./api.js";
import { alertError, announce, h, meta, update } from "./dom.js";
import { pager } from "./pager.js";
import { _ } from "./texts.js";
import { localTimes, when } from "./words.js";

const PAGE = 5;
const EVERY = 60_000; // ms
const WHILE_ONE_GOES_ON = 5_000; // ms
const STATES = { waiting: _("Waiting"), starting: _("Starting"), running: _("Running"), succeeded: _("Finished"), failed: _("Failed"), cancelled: _("Cancelled"), skipped: _("Skipped") };

/** How far one came that has ended. */
const cellsOf = ({ outcome, cells, done }) => (outcome && outcome !== "succeeded" && cells ? _("{done} of {cells} cells ran.", { done, cells }) : "");

/** Keep `list` showing them, and `section` hidden while there is none. */
export class Runs {
  constructor(section, list) {
    Object.assign(this, { section, list, offset: 0, total: 0, items: [], logs: new Map() });
    document.addEventListener("visibilitychange", () => document.hidden || this.read());
    this.read();
  }

  async read(offset = this.offset) {
    clearTimeout(this.timer);
    try {
      const found = await api.get(`runs?mine=1&offset=${offset}&limit=${PAGE}`);
      Object.assign(this, { offset, total: found.total, items: found.items });
      await Promise.all([...this.logs.keys()].map((id) => this.#readLog(id)));
      this.draw();
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      alertError(error);
    }
    const soon = this.items.some((run) => run.state !== "ended");
    this.timer = setTimeout(() => document.hidden || this.read(), soon ? WHILE_ONE_GOES_ON : EVERY);
  }

  /** Act on a button of the list; false where it is none of its own. */
  act(action, { id, offset }) {
    if (action === "runs-page") this.read(Number(offset));
    else if (action === "run-log") this.#toggleLog(id);
    else if (action === "run-cancel") this.#cancel(id);
    else return false;
    return true;
  }

  async #cancel(id) {
    try {
      const run = await api.del(`runs/${encodeURIComponent(id)}`, {});
      announce(run.sentence);
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      alertError(error);
    }
    this.read();
  }

  async #toggleLog(id) {
    if (!this.logs.delete(id)) {
      this.logs.set(id, []);
      await this.read();
    }
    this.draw();
  }

  async #readLog(id) {
    const found = await api.get(`runs/${encodeURIComponent(id)}/events`);
    if (this.logs.has(id)) this.logs.set(id, found.items);
  }

  draw() {
    this.section.hidden = this.total === 0;
    update(this.list, h("ul", { class: "list-group list-group-flush" }, this.items.map((run) => this.#row(run))), pager(this, PAGE, "runs-page"));
  }

  #row(run) {
    const name = run.notebook.split("/").pop() + (run.index === null ? "" : ` [${run.index}]`);
    const log = this.logs.get(run.id);
    const button = (action, text, label) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": action, "data-id": run.id, "data-key": action, "aria-label": label, "aria-expanded": action === "run-log" ? String(Boolean(log)) : null }, text);
    return h(
      "li",
      { class: "list-group-item gl-run", "data-key": run.id },
      h("strong", {}, name),
      h("span", { class: "badge gl-run-state", "data-state": run.outcome ?? run.state }, STATES[run.outcome ?? run.state]),
      h("span", { class: "gl-history-when" }, when(run.ended ?? run.started ?? run.created)),
      run.cells ? h("progress", { class: "gl-meter", max: run.cells, value: run.done, "aria-label": _("Cells of {name} that ran", { name }) }) : null,
      h("span", { class: "gl-run-words" }, [cellsOf(run), run.outcome === "succeeded" ? "" : run.sentence, run.gpu && localTimes(run.gpu)].filter(Boolean).join(" ")),
      h("span", { class: "gl-actions" }, this.#result(run), button("run-log", _("Log"), _("Log of {name}", { name })), run.state === "ended" ? null : button("run-cancel", _("Cancel"), _("Cancel {name}", { name }))),
      log ? h("ol", { class: "gl-run-log" }, log.map((each) => h("li", {}, `${when(each.at)} ${each.sentence} ${each.note}`))) : null,
    );
  }

  /** A link to the notebook with its output, once there is one in what the person's server shows. */
  #result(run) {
    if (!run.opens) return null;
    const path = run.opens.split("/").map(encodeURIComponent).join("/");
    return h("a", { class: "btn btn-sm btn-outline-contrast", href: `${meta("hub")}user-redirect/lab/tree/${path}`, "data-key": "open" }, _("Open the output"));
  }
}
