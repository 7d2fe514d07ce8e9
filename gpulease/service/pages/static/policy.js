// The policy editor: check, save as a new version, restore an earlier one.
import * as api from "./api.js";
import { diff } from "./diff.js";
import { alertError, announce, clearAlert, h, onAction, toast, update } from "./dom.js";
import "./editor.js";
import { pager } from "./pager.js";
import { asked, changeList, whatChanges } from "./saving.js";
import { TimeOuts } from "./timeouts.js";
import { _, _n } from "./texts.js";
import { when } from "./words.js";

const SIZE = 10;
const TYPED = 600; // ms after the last key until the text is checked
const $ = (id) => document.getElementById(id);
const text = $("policy-text");
let saved = null; // the version the editor began from
let versions = { offset: 0, total: 0, items: [] };
let compared = null; // the version that is shown beside the one in force: `{version, text}`
let typed = null; // the check that follows typing
let turn = 0; // an older check's answer is not shown
let conflicting = null; // the version that somebody saved meanwhile

function drawState() {
  const changed = typedIn();
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
  const errors = findings.filter((finding) => (finding.level ?? "error") === "error").length;
  const bad = errors > 0;
  const verdict = bad
    ? h("p", { class: "text-danger-emphasis" }, _n("{n} error to fix before saving.", "{n} errors to fix before saving.", errors))
    : h("p", { class: "text-success-emphasis" }, findings.length ? _("It can be saved, but note:") : _("Valid."));
  $("policy-findings").replaceChildren(verdict, h("ul", { class: "list-unstyled" }, findings.map(findingItem)), ...whatChanges(result.changes ?? [], result));
  text.mark(findings);
  return !bad;
}

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
  $("advanced").open = true;
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

/** Put a text into force once the person has seen what it changes; whether it was. */
async function putInForce(wanted, heading, submit, lost) {
  const checked = await api.post("policy/check", { text: wanted });
  if (!drawFindings(checked)) {
    text.value = wanted; // where the lines are that it names
    $("advanced").open = true;
    return false;
  }
  const changes = checked.changes ?? [];
  if (!(await asked({ heading, submit, about: whatChanges(changes, checked), lost }))) return false;
  take(await api.put("policy", { text: wanted, base_version: saved.version }));
  drawSaved(changes);
  toast(_("Saved as version {version}; it is in force now.", saved));
  await readVersions(0);
  await outs.read();
  return true;
}

async function save(event) {
  event.preventDefault();
  $("policy-save").disabled = true;
  const lost = outs.changed ? _("The time-outs that you changed in the form above are dropped.") : "";
  await attempt(() => putInForce(text.value, _("Save this policy?"), _("Save"), lost));
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
    current ? null : h("span", { class: "gl-actions" }, button("compare", version, _("Compare"), _("Compare version {version} with the one in force", version)), button("restore", version, _("Restore…"), _("Restore version {version}", version))),
    version.version === compared?.version && h("div", { class: "gl-version-diff", "data-key": "diff" }, h("p", { class: "gl-small mb-1" }, _("From version {version} (−) to the one in force (+)", version)), diff(compared.text, saved.text)),
  );
}

const button = (action, { version }, text, label) => h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": action, "data-version": version, "data-key": action, "aria-label": label, "aria-expanded": action === "compare" && String(version === compared?.version) }, text);

/** Show what changed since a version; a second click hides it. */
const compare = (version) =>
  attempt(async () => {
    compared = version === compared?.version ? null : await api.get(`policy/versions/${version}`);
    drawVersions();
  });

const drawVersions = () => update($("policy-versions"), h("ul", { class: "list-group" }, versions.items.map(versionItem)), pager(versions, SIZE));

async function readVersions(offset = versions.offset) {
  const answer = await api.get(`policy/versions?offset=${offset}&limit=${SIZE}`);
  versions = { offset, total: answer.total, items: answer.items };
  drawVersions();
}

/** Make an earlier text the newest version. */
const restore = (version) =>
  attempt(async () => {
    const { text: earlier } = await api.get(`policy/versions/${version}`);
    const lost = typedIn() || outs.changed ? _("What you changed here and did not save is dropped.") : "";
    const done = await putInForce(earlier, _("Restore version {version}?", { version }), _("Restore"), lost);
    if (!done) await check(); // of what is in the editor
  });

const typedIn = () => saved !== null && text.value !== saved.text;

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
  if (action === "compare") compare(Number(target.dataset.version));
  if (action === "restore") restore(Number(target.dataset.version));
  if (action === "page") attempt(() => readVersions(Number(target.dataset.offset)));
});
window.addEventListener("beforeunload", (event) => {
  if (typedIn() || outs.changed) event.preventDefault();
});
const outs = new TimeOuts($("outs"), () => (typedIn() ? _("What you typed in the document below is dropped.") : ""), (policy) => {
  take(policy);
  attempt(() => readVersions(0));
});
/** The editor and its completions are loaded when it is opened. */
async function openEditor() {
  if (!$("advanced").open) return;
  await text.load();
  text.schema ??= await api.get("policy/schema");
}
$("advanced").addEventListener("toggle", () => attempt(openEditor));
$("advanced").open = window.location.hash === "#advanced";
attempt(async () => {
  take(await api.get("policy"));
  await readVersions();
  await outs.read();
});
