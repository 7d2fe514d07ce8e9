// What other time-outs would have made of last week, worked out by the service while one tries them.
import * as api from "./api.js";
import { keepDrawn } from "./charts.js";
import { h, update } from "./dom.js";
import { _ } from "./texts.js";
import { drawReplay } from "./tradeoff.js";

const WAIT = 700; // ms after the last change until the service is asked
const AGAIN = 5000; // ms until it is asked again while it works on another
const DAYS = 7;

/** Keeps `place` saying it for the document that was given last; "" for none. */
export class Replay {
  constructor(place) {
    Object.assign(this, { place, text: "", timer: null, found: null });
    this.redraw = keepDrawn(place, () => {
      const pictures = place.querySelector("#outs-pictures");
      return pictures && this.found ? drawReplay(pictures, this.found) : [];
    });
  }

  of(text) {
    if (text === this.text) return;
    this.text = text;
    this.#soon(WAIT);
    this.#say(text ? _("Computing last week with these values…") : "");
  }

  #soon(wait) {
    clearTimeout(this.timer);
    if (this.text) this.timer = setTimeout(() => this.#ask(), wait);
  }

  async #ask() {
    const { text } = this;
    let found;
    try {
      found = await api.post("whatif", { text, days: DAYS });
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (text !== this.text) return;
      if (error.status === 429) this.#soon(AGAIN);
      else this.#say(`${error.sentence} ${error.nextStep}`.trim());
      return;
    }
    if (text === this.text) this.#show(found);
  }

  #say(sentence) {
    this.found = null;
    update(this.place, sentence ? h("p", { class: "gl-small mb-0" }, sentence) : null);
  }

  #show(found) {
    const cut = found.complete ? "" : ` ${_("Not all of it could be replayed in time.")}`;
    update(
      this.place,
      h("h3", { class: "h6" }, _("Last week with these values")),
      h("ul", { class: "mb-1" }, found.sentences.map((sentence) => h("li", {}, sentence))),
      h("p", { class: "gl-small" }, `${found.assumption}${cut}`),
      h("div", { id: "outs-pictures" }),
    );
    this.found = found;
    this.redraw();
  }
}
