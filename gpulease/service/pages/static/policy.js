// The policy editor: check, save as a new version, restore an earlier one.
import * as api from "./api.js";
import { alertError, announce, clearAlert, h, onAction, update } from "./dom.js";
import "./editor.js";
import { pager } from "./pager.js";
import { TimeOuts } from "./timeouts.js";
import { count, when } from "./words.js";

const SIZE = 10;
const TYPED = 600; // ms after the last key until the text is checked
const $ = (id) => document.getElementById(id);
const text = $("policy-text");
let saved = null; // the version the editor began from
let versions = { offset: 0, total: 0, items: [] };
let typed = null; // the check that follows typing
let turn = 0; // an older check's answer is not shown
let conflicting = null; // the version that somebody saved meanwhile

function drawState() {
  const changed = saved !== null && text.value !== saved.text;
  const pinned = saved?.pinned;
  $("policy-save").disabled = !changed || pinned;
  $("policy-check").disabled = saved === null;
  const by = saved ? `version ${saved.version}${saved.author ? `, by ${saved.author}` : ""}` : "";
  $("policy-state").textContent = pinned
    ? `${by}; pinned to a file, change it there`
    : changed
      ? `changed, based on ${by}`
      : by;
}

function findingItem(finding) {
  const level = finding.level ?? "error";
  const place = finding.line ? `Line ${finding.line}` : "Document";
  return h(
    "li",
    {},
    h("button", { type: "button", class: `gl-finding gl-finding-${level}`, "data-action": "line", "data-line": finding.line || 1 }, h("strong", {}, `${place}: `), finding.sentence, finding.next_step ? ` ${finding.next_step}` : ""),
  );
}

function drawFindings(result) {
  const findings = result.findings ?? [];
  const changes = [...(result.changes ?? [])];
  const errors = findings.filter((finding) => (finding.level ?? "error") === "error").length;
  const bad = errors > 0;
  const warned = result.warned ?? 0;
  const verdict = bad
    ? h("p", { class: "text-danger-emphasis" }, `${count(errors, "error", "errors")} to fix before saving.`)
    : h("p", { class: "text-success-emphasis" }, findings.length ? "It can be saved; mind this:" : "It is valid.");
  if (warned) changes.unshift(`warn ${count(warned, "running lease", "running leases")} now`);
  $("policy-findings").replaceChildren(verdict, h("ul", { class: "list-unstyled" }, findings.map(findingItem)));
  $("policy-findings").append(...changeList("Saving it would", changes), ...changeList("What it means, and for whom", result.effects ?? []));
  text.mark(findings);
  return !bad;
}

const changeList = (title, changes) =>
  changes.length ? [h("h3", { class: "h6" }, title), h("ul", {}, changes.map((change) => h("li", {}, change)))] : [];

/** What a save did, in place of what it would do. */
function drawSaved(changes) {
  $("policy-findings").replaceChildren(
    h("p", { class: "text-success-emphasis" }, `Saved as version ${saved.version}; it counts from now on.`),
    ...changeList("What was changed", changes),
  );
}

async function attempt(work) {
  clearTimeout(typed); // what is done now is shown, not what was typed before
  turn += 1;
  try {
    await work();
    clearAlert();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    if (Array.isArray(error.numbers.findings)) drawFindings({ findings: error.numbers.findings });
    if (error.reason === "policy_changed") await drawConflict();
    else alertError(error);
  }
}

/** Somebody saved meanwhile: both texts line by line, and what was typed stays. */
async function drawConflict() {
  const theirs = await api.get("policy");
  const sides = [["Theirs", theirs.text, text.value], ["Yours", text.value, theirs.text]];
  const side = ([name, own, other]) => {
    const known = new Set(other.split("\n"));
    const lines = own.split("\n").map((line) => h("span", { class: known.has(line) ? null : "gl-line-differs" }, `${line}\n`));
    return h("div", {}, h("h3", { class: "h6" }, name), h("pre", { class: "gl-side", tabindex: "0" }, lines));
  };
  const button = (action, words) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": action }, words);
  $("policy-findings").replaceChildren(
    h("p", { role: "alert", id: "policy-conflict" }, h("strong", {}, `${theirs.author || "Somebody"} saved version ${theirs.version} meanwhile. `), "What you typed is still here."),
    h("div", { class: "gl-actions mb-2" }, button("keep-mine", "Save mine over it"), button("take-theirs", "Take theirs")),
    ...sides.map(side),
  );
  announce(`Version ${theirs.version} was saved meanwhile.`);
  conflicting = theirs;
}

const check = () => attempt(async () => drawFindings(await api.post("policy/check", { text: text.value })));

async function save(event) {
  event.preventDefault();
  $("policy-save").disabled = true;
  await attempt(async () => {
    const checked = await api.post("policy/check", { text: text.value });
    if (!drawFindings(checked)) return;
    take(await api.put("policy", { text: text.value, base_version: saved.version }));
    drawSaved(checked.changes ?? []);
    announce(`Saved as version ${saved.version}; it counts from now on.`);
    await readVersions(0);
    await outs.read();
  });
  drawState();
}

function take(document_) {
  saved = document_;
  text.value = document_.text;
  text.readOnly = Boolean(document_.pinned);
  text.mark([]);
  drawState();
}

function versionItem(version) {
  const current = version.version === saved?.version;
  return h(
    "li",
    { class: "list-group-item gl-version", "data-key": `v${version.version}` },
    h("span", {}, h("strong", {}, `Version ${version.version}`), current ? " (in force)" : "", h("span", { class: "gl-small d-block" }, `${version.author || "gpulease"}, ${when(version.at)}`)),
    current ? null : h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": "restore", "data-version": version.version, "aria-label": `Restore version ${version.version}` }, "Restore…"),
  );
}

async function readVersions(offset = versions.offset) {
  const answer = await api.get(`policy/versions?offset=${offset}&limit=${SIZE}`);
  versions = { offset, total: answer.total, items: answer.items };
  update($("policy-versions"), h("ul", { class: "list-group" }, versions.items.map(versionItem)), pager(versions, SIZE));
}

// Restoring puts the old text into the editor; it counts only when it is saved, as a new version.
const restore = (version) =>
  attempt(async () => {
    text.value = (await api.get(`policy/versions/${version}`)).text;
    drawState();
    await check();
    $("policy-state").textContent = `version ${version} is in the editor; save to put it in force`;
    $("policy-save").focus();
  });

// Checked while one types, so that what is wrong is marked where it stands.
async function whileTyping() {
  const [now, mine] = [text.value, ++turn];
  if (saved === null || now === saved.text) return;
  try {
    const checked = await api.post("policy/check", { text: now });
    if (mine === turn) drawFindings(checked);
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error; // Check and Save say what is refused
  }
}

text.addEventListener("input", () => {
  drawState();
  clearTimeout(typed);
  typed = setTimeout(whileTyping, TYPED);
});
$("policy-check").addEventListener("click", check);
$("policy-form").addEventListener("submit", save);
onAction(document.body, (action, target) => {
  if (action === "keep-mine") {
    saved = conflicting;
    drawState();
    $("policy-form").requestSubmit();
  }
  if (action === "take-theirs") {
    take(conflicting);
    $("policy-findings").replaceChildren();
  }
  if (action === "line") text.goTo(Number(target.dataset.line));
  if (action === "restore") restore(Number(target.dataset.version));
  if (action === "page") attempt(() => readVersions(Number(target.dataset.offset)));
});
window.addEventListener("beforeunload", (event) => {
  if (saved && text.value !== saved.text) event.preventDefault();
});
const outs = new TimeOuts($("outs"), (policy) => {
  take(policy);
  attempt(() => readVersions(0));
});
$("advanced").open = window.location.hash === "#advanced";
attempt(async () => {
  take(await api.get("policy"));
  await readVersions();
  await outs.read();
  text.schema = await api.get("policy/schema");
});
