// What shows the policy's editor: CodeMirror over YAML, completion by the document's JSON Schema,
// marks where the service's check finds something.
import * as cm from "./lib/editor.js";
import { completion } from "./completion.js";

const theme = cm.EditorView.theme({
  "&": { height: "36rem", fontSize: ".875rem", backgroundColor: "var(--bs-body-bg)", color: "var(--bs-body-color)" },
  "&.cm-focused": { outline: "2px solid var(--bs-focus-ring-color, currentcolor)" },
  ".cm-scroller": { fontFamily: "var(--bs-font-monospace)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--bs-body-color)" },
  ".cm-cursor": { borderLeftColor: "var(--bs-body-color)" },
  ".cm-gutters": { backgroundColor: "var(--bs-tertiary-bg)", color: "var(--bs-secondary-color)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--bs-tertiary-bg)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--bs-primary-bg-subtle)" },
  ".cm-tooltip": { backgroundColor: "var(--bs-body-bg)", color: "var(--bs-body-color)", border: "1px solid var(--bs-border-color)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--bs-primary-bg-subtle)", color: "var(--bs-primary-text-emphasis)" },
  ".cm-completionInfo": { maxWidth: "20rem" },
});
const { tags } = cm;
const colours = cm.HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--bs-primary-text-emphasis)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--bs-secondary-color)", fontStyle: "italic" },
  { tag: [tags.string, tags.attributeValue], color: "var(--bs-success-text-emphasis)" },
]);

/** The extensions; `schema()` gives what is completed by, `changed()` follows each edit. */
const extensions = ({ label, schema, changed }) => [
  cm.lineNumbers(),
  cm.lintGutter(),
  cm.history(),
  cm.drawSelection(),
  cm.highlightActiveLine(),
  cm.yaml(),
  cm.indentUnit.of("  "),
  cm.syntaxHighlighting(colours),
  cm.autocompletion({ override: [(context) => schema() && completion(context, schema())] }),
  // Tab moves on, as it does in every field.
  cm.keymap.of([...cm.completionKeymap, ...cm.lintKeymap, ...cm.historyKeymap, ...cm.defaultKeymap]),
  theme,
  // What scrolls is reached by keyboard: said, since not everything takes what is edited for it.
  cm.EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
  cm.EditorView.updateListener.of((update) => update.docChanged && changed()),
];

export class View {
  #view;
  #locked = new cm.Compartment();

  constructor(root, about) {
    const state = cm.EditorState.create({ extensions: [extensions(about), this.#locked.of([])] });
    this.#view = new cm.EditorView({ state, parent: root, root });
  }

  get value() {
    return this.#view.state.doc.toString();
  }

  set value(text) {
    this.#view.dispatch({ changes: { from: 0, to: this.#view.state.doc.length, insert: text } });
  }

  get readOnly() {
    return this.#view.state.readOnly;
  }

  set readOnly(locked) {
    this.#view.dispatch({ effects: this.#locked.reconfigure(locked ? cm.EditorState.readOnly.of(true) : []) });
  }

  /** Mark what was found: `{line, column, level, sentence, next_step}` each. */
  mark(findings) {
    const { doc } = this.#view.state;
    const marks = findings.map((finding) => {
      const line = doc.line(Math.min(Math.max(finding.line || 1, 1), doc.lines));
      const from = Math.min(line.from + Math.max((finding.column || 1) - 1, 0), line.to);
      return { from, to: line.to, severity: finding.level === "caution" ? "warning" : "error", message: [finding.sentence, finding.next_step].filter(Boolean).join(" ") };
    });
    this.#view.dispatch(cm.setDiagnostics(this.#view.state, marks));
  }

  /** Go to a line and choose it. */
  goTo(number) {
    const { doc } = this.#view.state;
    const line = doc.line(Math.min(Math.max(number, 1), doc.lines));
    this.#view.dispatch({ selection: { anchor: line.from, head: line.to }, scrollIntoView: true });
    this.#view.focus();
  }

  focus() {
    this.#view.focus();
  }
}
