// Asks the service what a dialog would do while one fills it in.  Only the last answer counts.
import * as api from "./api.js";

const WAIT = 350; // ms after the last key until the service is asked
const AGAIN = 2_000; // ms until it is asked again where it could not answer

export class Checking {
  #turn = 0;
  #timer;

  /** `ask()` resolves to what `show` draws, or to null while there is too little to ask; `refused` draws a `Refusal`. */
  constructor(dialog, { ask, show, refused }) {
    Object.assign(this, { dialog, ask, show, refused });
  }

  soon() {
    this.#turn += 1; // what is on its way answers another question
    this.#in(WAIT);
  }

  async now() {
    const turn = ++this.#turn;
    clearTimeout(this.#timer);
    const current = () => turn === this.#turn && this.dialog.open;
    try {
      const found = await this.ask();
      if (found && current()) this.show(found);
    } catch (error) {
      if (!(error instanceof api.Refusal)) throw error;
      if (!current()) return;
      this.refused(error);
      if (error.passing) this.#in(AGAIN); // nobody would type again to learn that it answers now
    }
  }

  #in(milliseconds) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.dialog.open && this.now(), milliseconds);
  }
}
