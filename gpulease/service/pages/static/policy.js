// The policy editor: check, save as a new version, restore an earlier one.
import * as api from "./api.js";
import { alertError, announce, clearAlert, h, onAction, update } from "./dom.js";
import "./editor.js";
import { pager } from "./pager.js";
import { TimeOuts } from "./timeouts.js";
import { _, _n } from "./texts.js";
import { when } from "./words.js";

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
  const by = saved ? (saved.author ? _("version {version}, by {author}", saved) : _("version {version}", saved)) : "";
  $("policy-state").textContent = pinned ? _("{version}; pinned to a file, change it there", { version: by }) : changed ? _("changed, based on {version}", { version: by }) : by;
}

function findingItem(finding) {
  const level = finding.level ?? "error";
  const place = finding.line ? _("Line {line}", finding) : _("Document");
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
    ? h("p", { class: "text-danger-emphasis" }, _n("{n} error to fix before saving.", "{n} errors to fix before saving.", errors))
    : h("p", { class: "text-success-emphasis" }, findings.length ? _("It can be saved, but note:") : _("It is valid."));
  if (warned) changes.unshift(_n("warn {n} running lease now", "warn {n} running leases now", warned));
  $("policy-findings").replaceChildren(verdict, h("ul", { class: "list-unstyled" }, findings.map(findingItem)));
  $("policy-findings").append(...changeList(_("Saving it would"), changes), ...changeList(_("What it means, and for whom"), result.effects ?? []));
  text.mark(findings);
  return !bad;
}

const changeList = (title, changes) =>
  changes.length ? [h("h3", { class: "h6" }, title), h("ul", {}, changes.map((change) => h("li", {}, change)))] : [];

/** What a save did, in place of what it would do. */
function drawSaved(changes) {
  $("policy-findings").replaceChildren(
    h("p", { class: "text-success-emphasis" }, _("Saved as version {version}; it is in force now.", saved)),
    ...changeList(_("What was changed"), changes),
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
  const author = theirs.author || _("Somebody");
  const sides = [[_("Theirs"), theirs.text, text.value], [_("Yours"), text.value, theirs.text]];
  const side = ([name, own, other]) => {
    const known = new Set(other.split("\n"));
    const lines = own.split("\n").map((line) => h("span", { class: known.has(line) ? null : "gl-line-differs" }, `${line}\n`));
    return h("div", {}, h("h3", { class: "h6" }, name), h("pre", { class: "gl-side", tabindex: "0" }, lines));
  };
  const button = (action, words) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": action }, words);
  $("policy-findings").replaceChildren(
    h("p", { role: "alert", id: "policy-conflict" }, h("strong", {}, _("{author} saved version {version} meanwhile.", { ...theirs, author })), " ", _("What you typed is still here.")),
    h("div", { class: "gl-actions mb-2" }, button("keep-mine", _("Save mine over it")), button("take-theirs", _("Take theirs"))),
    ...sides.map(side),
  );
  announce(_("Version {version} was saved meanwhile.", theirs));
  conflicting = theirs;
  await readVersions(0);
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
    announce(_("Saved as version {version}; it is in force now.", saved));
    await readVersions(0);
    await outs.read();
  });
  drawState();
}

function take(document_) {
  saved = document_;
  conflicting = null;
  text.value = document_.text;
  text.readOnly = Boolean(document_.pinned);
  text.mark([]);
  drawState();
}

function versionItem(version) {
  const current = version.version === (conflicting ?? saved)?.version;
  return h(
    "li",
    { class: "list-group-item gl-version", "data-key": `v${version.version}` },
    h("span", {}, h("strong", {}, _("Version {version}", version)), current ? ` ${_("(in force)")}` : "", h("span", { class: "gl-small d-block" }, `${version.author || "gpulease"}, ${when(version.at)}`)),
    current ? null : h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": "restore", "data-version": version.version, "aria-label": _("Restore version {version}", version) }, _("Restore…")),
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
    $("policy-state").textContent = _("version {version} is in the editor; save to put it in force", { version });
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
    attempt(() => outs.read());
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
