// Time-outs as a form: what each means, its bounds and default, and what a change would do at once.
import * as api from "./api.js";
import { alertError, announce, h, toast, update } from "./dom.js";
import { Replay } from "./replay.js";
import { asked, whatChanges } from "./saving.js";
import { _, _n } from "./texts.js";
import { duration } from "./words.js";

const WAIT = 300; // ms after the last key until the service is asked
const UNITS = [["d", 86400, _("days")], ["h", 3600, _("hours")], ["m", 60, _("minutes")], ["s", 1, _("seconds")]];
const FIRST = ["idle", "idle_under_pressure", "warning", "keep", "keeps", "hard_length"];
const TEXTS = {
  idle: [_("Idle"), _("A GPU that nothing has used for this long is released, after the warning.")],
  idle_under_pressure: [_("Idle while others wait"), _("The same while somebody waits for this kind of GPU.")],
  warning: [_("Warning"), _("How long before the release the holder is warned and can press Keep.")],
  keep: [_("Keep lasts"), _("How long one press of Keep protects an idle GPU.")],
  keeps: [_("Max. extensions"), _("How often Keep may be pressed before the GPU is used again.")],
  hard_length: [_("Hard limit"), _("A lease ends after this time, used or not.")],
  quiet: [_("Quiet"), _("A GPU that is idle for this long while a cell runs is released as well.")],
  warm_up: [_("Warm-up"), _("At the start of a lease nothing counts as idle for this long.")],
  claim: [_("Claim"), _("A GPU that is not claimed within this time goes to the next person.")],
  drain_max: [_("Saving variables"), _("The longest that this may take at the end of a lease.")],
  interrupt_grace: [_("Interrupt"), _("How long a cell that still runs has to stop.")],
  minimum_runtime: [_("Minimum run time"), _("For this long others' guarantees cannot end a new lease.")],
  start_max: [_("Start"), _("A start that takes longer counts as failed.")],
  unknown_hold: [_("No data"), _("How long a GPU stays with its holder without any data on its use.")],
  busy_max: [_("Unverified activity limit"), _("A GPU that only the notebook calls busy for this long counts as quiet.")],
  wait: [_("Queue time-out"), _("How long a GPU cell waits for a GPU unless it says otherwise.")],
};

const titleOf = (name) => TEXTS[name]?.[0] ?? name;
const long = (seconds) => (seconds >= 2 * 86400 && seconds % 86400 === 0 ? _n("{n} day", "{n} days", seconds / 86400) : duration(seconds));

/** The largest unit that says a duration in a whole number: 5400 s is 90 minutes. */
function inUnits(seconds) {
  const [unit, size] = UNITS.find(([, each]) => seconds >= each && seconds % each === 0) ?? UNITS[3];
  return [seconds / size, unit];
}

const COUNTS = [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100];
const SECONDS = [0, 1, 5, 10, 15, 30, 45, 60, 90, ...[2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 45, 50, 60, 90].map((each) => each * 60), ...[2, 3, 4, 5, 6, 8, 10, 12, 18, 24, 36, 48, 72, 96, 168, 336, 720, 2160, 4320, 8784].map((each) => each * 3600)];

/** What a slider can be put to: round values within the bounds, and what is in force. */
function steps(item) {
  const round = (item.counted ? COUNTS : SECONDS).filter((each) => each >= item.least && each <= item.most);
  return [...new Set([...round, item.value])].sort((a, b) => a - b);
}

const nearest = (values, wanted) => values.reduce((best, each, index) => (Math.abs(each - wanted) < Math.abs(values[best] - wanted) ? index : best), 0);

export class TimeOuts {
  /** `place` gets the form; `lost()` says what a save drops beside it; `saved(policy)` is called after one. */
  constructor(place, lost, saved) {
    Object.assign(this, { place, lost, saved, items: [], version: 0, pinned: false, asked: 0, checked: null });
    place.addEventListener("input", (event) => {
      this.#lower(this.#slide(event.target));
      this.#soon();
    });
    place.addEventListener("submit", (event) => this.#save(event));
    place.addEventListener("click", (event) => this.#choose(event.target.closest("[data-choice]")?.dataset.choice));
  }

  /** Whether the form says anything that is not in force. */
  get changed() {
    return this.items.length > 0 && Object.keys(this.#values()).length > 0;
  }

  async read() {
    const { items, version, pinned } = await api.get("policy/time-outs");
    Object.assign(this, { items, version, pinned, checked: null });
    this.#draw();
  }

  #draw() {
    const [first, more] = [[], []];
    for (const name of FIRST) first.push(this.items.find((item) => item.name === name));
    for (const item of this.items) if (!FIRST.includes(item.name)) more.push(item);
    this.place.replaceChildren(
      h("div", { class: "gl-form" }, first.map((item) => this.#field(item))),
      h("details", { class: "mt-3" }, h("summary", {}, _("More time-outs")), h("div", { class: "gl-form mt-2" }, more.map((item) => this.#field(item)))),
      h("div", { class: "gl-found", id: "outs-found" }),
      h("div", { class: "gl-found", id: "outs-replay", role: "status" }),
      h("div", { class: "gl-actions mt-3" }, h("button", { class: "btn btn-primary", type: "submit", id: "outs-save", disabled: true }, _("Save")), h("button", { class: "btn btn-outline-contrast", type: "button", "data-choice": "undo", id: "outs-undo", disabled: true }, _("Undo changes")), this.pinned ? h("span", { class: "text-body-secondary" }, _("Pinned to a file: change it there.")) : null),
    );
    this.replay = new Replay(this.place.querySelector("#outs-replay"));
    this.#say();
  }

  #field(item) {
    const id = `out-${item.name}`;
    const [title, help] = [titleOf(item.name), TEXTS[item.name]?.[1] ?? ""];
    const [number, unit] = item.counted ? [item.value, ""] : inUnits(item.value);
    const say = (value) => (item.counted ? value : long(value));
    const within = { value: say(item.default), least: say(item.least), most: say(item.most) };
    const bounds = item.below ? _("Default {value}; {least} to {most}, never longer than {other}.", { ...within, other: titleOf(item.below) }) : _("Default {value}; {least} to {most}.", within);
    return h(
      "div",
      { class: "gl-out" },
      h("label", { class: "form-label", for: id }, title),
      h(
        "div",
        { class: "input-group" },
        h("input", { class: "form-control", id, type: "number", min: 0, step: item.counted ? 1 : "any", required: true, value: number, "data-name": item.name, "aria-describedby": `${id}-help`, readonly: this.pinned }),
        item.counted ? null : h("select", { class: "form-select gl-unit", id: `${id}-unit`, "aria-label": _("Unit of {title}", { title }), disabled: this.pinned }, UNITS.map(([each, , word]) => h("option", { value: each, selected: each === unit }, word))),
      ),
      h("input", { class: "form-range", type: "range", id: `${id}-slider`, min: 0, max: steps(item).length - 1, step: 1, value: nearest(steps(item), item.value), "aria-label": title, "aria-valuetext": say(item.value), disabled: this.pinned }),
      h("div", { class: "form-text", id: `${id}-help` }, help, " ", h("span", { title: item.why || null }, bounds)),
    );
  }

  #parts(item) {
    return ["", "-unit", "-slider"].map((part) => this.place.querySelector(`#out-${item.name}${part}`));
  }

  /** What the form says of one, in seconds or as a number. */
  #valueOf(item) {
    const [field, unit] = this.#parts(item);
    return Number(field.value) * (UNITS.find(([each]) => each === unit?.value)?.[1] ?? 1);
  }

  #put(item, value) {
    const [field, unit] = this.#parts(item);
    const [number, chosen] = item.counted ? [value, ""] : inUnits(value);
    field.value = number;
    if (unit) unit.value = chosen;
  }

  /** A slider and its field follow each other; returns whose they are. */
  #slide(target) {
    const item = this.items.find((each) => target.id.startsWith(`out-${each.name}`) && target.id.slice(4 + each.name.length).match(/^(-slider|-unit)?$/));
    if (!item) return null;
    const [field, unit, slider] = this.#parts(item);
    if (target === slider) this.#put(item, steps(item)[slider.value]);
    else slider.value = nearest(steps(item), this.#valueOf(item));
    slider.setAttribute("aria-valuetext", `${field.value} ${unit?.selectedOptions[0].textContent ?? ""}`.trim());
    return item;
  }

  /** Take along those that are never longer than `item`. */
  #lower(item) {
    const most = item && this.#valueOf(item);
    if (!item || most < item.least) return;
    for (const other of this.items) {
      if (other.below !== item.name || this.#valueOf(other) <= most) continue;
      this.#put(other, most);
      this.#slide(this.#parts(other)[0]);
    }
  }

  /** What is longer than what it may never be longer than. */
  #tooLong() {
    return this.items
      .map((item) => [item, this.items.find((each) => each.name === item.below)])
      .filter(([item, other]) => other && this.#valueOf(item) > this.#valueOf(other))
      .map(([item, other]) => ({ sentence: _("{title} must not be longer than {other}.", { title: titleOf(item.name), other: titleOf(other.name) }), next_step: _("{other} is {time}.", { other: titleOf(other.name), time: long(this.#valueOf(other)) }) }));
  }

  /** What the form says now, of those that differ from what is in force, as the document writes it. */
  #values() {
    const found = {};
    for (const item of this.items) {
      const [field, unit] = this.#parts(item);
      if (field.value !== "" && this.#valueOf(item) !== item.value) found[item.name] = `${Number(field.value)}${unit?.value ?? ""}`;
    }
    return found;
  }

  #soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#check(), WAIT);
  }

  async #check() {
    const turn = ++this.asked;
    const values = this.#values();
    if (!Object.keys(values).length) {
      this.checked = null;
      this.#say();
      return;
    }
    const tooLong = this.#tooLong();
    if (tooLong.length) {
      this.checked = { valid: false, findings: tooLong, changes: [] };
      this.#say();
      return;
    }
    let checked;
    try {
      checked = await api.post("policy/time-outs", { values });
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      checked = { valid: false, findings: [{ sentence: error.sentence, next_step: error.nextStep }], changes: [] };
    }
    if (turn !== this.asked) return;
    this.checked = checked;
    this.#say();
  }

  #say() {
    const { checked } = this;
    this.replay.of(checked?.valid ? checked.text : "");
    const place = this.place.querySelector("#outs-found");
    const valid = checked?.valid ?? null;
    place.dataset.fits = valid === null ? "" : String(valid);
    this.place.querySelector("#outs-save").disabled = !valid || this.pinned;
    this.place.querySelector("#outs-undo").disabled = checked === null;
    if (!checked) {
      update(place, h("p", { class: "text-body-secondary mb-0" }, _("Change a value to see what it would do. Nothing is applied before you save.")));
      return;
    }
    const effect = checked.warned ? _n("{n} running lease would be warned now.", "{n} running leases would be warned now.", checked.warned) : _("No running lease would be warned now.");
    update(
      place,
      checked.valid ? h("p", { class: "mb-1" }, h("strong", { id: "outs-warned" }, effect)) : null,
      checked.findings.map((finding) => h("p", { class: "mb-1" }, finding.sentence, " ", finding.next_step)),
      checked.valid ? h("ul", { class: "mb-0" }, this.#changes().map((change) => h("li", {}, change))) : null,
    );
    announce(checked.valid ? effect : checked.findings[0].sentence);
  }

  async #save(event) {
    event.preventDefault();
    if (!this.checked?.valid) return;
    const { checked } = this;
    const values = this.#values();
    const about = whatChanges(this.#changes(), checked);
    if (!(await asked({ heading: _("Save these time-outs?"), submit: _("Save"), about, lost: this.lost() }))) return;
    try {
      const policy = await api.put("policy", { text: checked.text, base_version: this.version });
      toast(_("Saved as version {version}; it is in force now.", policy));
      await this.read();
      this.saved(policy);
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (error.reason === "policy_changed") await this.#conflict(values);
      else alertError(error);
    }
  }

  /** "Idle: 1 min → 1 s", for each that differs from what is in force. */
  #changes() {
    const say = (item, value) => (item.counted ? value : long(value));
    const differs = this.items.filter((item) => item.name in this.#values());
    return differs.map((item) => `${titleOf(item.name)}: ${say(item, item.value)} → ${say(item, this.#valueOf(item))}`);
  }

  /** Somebody saved meanwhile: both sides, and the edit is kept. */
  async #conflict(values) {
    const mine = this.items.filter((item) => item.name in values).map((item) => [item.name, item.value, values[item.name]]);
    await this.read();
    const [policy] = (await api.get("policy/versions?limit=1")).items;
    const author = policy.author || _("Somebody");
    for (const [name, , value] of mine) {
      const unit = this.place.querySelector(`#out-${name}-unit`);
      this.place.querySelector(`#out-${name}`).value = Number.parseFloat(value);
      if (unit) unit.value = value.at(-1);
    }
    await this.#check();
    const now = (name) => this.items.find((item) => item.name === name);
    const say = (item, value) => (item.counted ? value : long(value));
    update(
      this.place.querySelector("#outs-found"),
      h("p", { class: "mb-1", role: "alert", id: "outs-conflict" }, h("strong", {}, _("{author} saved version {version} meanwhile.", { ...policy, author })), " ", _("Your values are still here, on top of it; Save puts them into force.")),
      h(
        "table",
        { class: "table table-sm mb-2" },
        h("thead", {}, h("tr", {}, [_("Time-out"), _("Before"), _("Theirs"), _("Yours")].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, mine.map(([name, before, value]) => h("tr", {}, h("td", {}, titleOf(name)), h("td", {}, say(now(name), before)), h("td", {}, say(now(name), now(name).value)), h("td", {}, value)))),
      ),
      h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-choice": "undo" }, _("Take theirs")),
    );
  }

  #choose(choice) {
    if (choice !== "undo") return;
    this.checked = null;
    this.#draw();
  }
}
