// The policy's editor: a custom element with `value` and `readOnly`, as a textarea has them.  What
// shows it is large and is loaded by `load()`, when somebody opens it; the text is here before.
// It is in a shadow root, since only there CodeMirror's styles stand under a strict policy.
class Editor extends HTMLElement {
  #view = null;
  #loading = null;
  #held = { value: "", readOnly: false };
  #found = [];

  /** The JSON Schema that is completed by. */
  schema = null;

  /** Show it. */
  load() {
    this.#loading ??= this.#show().catch((error) => {
      this.#loading = null; // the next opening tries again
      throw error;
    });
    return this.#loading;
  }

  async #show() {
    const { View } = await import("./codemirror.js");
    const changed = () => this.dispatchEvent(new Event("input", { bubbles: true }));
    const label = document.querySelector(`label[for="${this.id}"]`)?.textContent ?? "";
    const view = new View(this.attachShadow({ mode: "open" }), { label, schema: () => this.schema, changed });
    Object.assign(view, this.#held);
    this.#view = view;
    view.mark(this.#found);
  }

  get value() {
    return (this.#view ?? this.#held).value;
  }

  set value(text) {
    (this.#view ?? this.#held).value = text;
  }

  get readOnly() {
    return (this.#view ?? this.#held).readOnly;
  }

  set readOnly(locked) {
    (this.#view ?? this.#held).readOnly = locked;
  }

  /** Mark what was found: `{line, column, level, sentence, next_step}` each. */
  mark(findings) {
    this.#found = findings;
    this.#view?.mark(findings);
  }

  /** Go to a line and choose it. */
  async goTo(line) {
    await this.load();
    this.#view.goTo(line);
  }

  focus() {
    this.#view?.focus();
  }
}

customElements.define("gl-editor", Editor);
