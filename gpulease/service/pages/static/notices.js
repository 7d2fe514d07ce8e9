// What instructors and admins tell the reader, above everything else on a page.
import { h, update } from "./dom.js";
import { _ } from "./texts.js";
import { when } from "./words.js";

/** Keep the messages of `live` shown; `withdraw(id)`, where given, takes one back. */
export function showMessages(live, withdraw = null) {
  const place = document.getElementById("gl-messages");
  const draw = () => {
    const now = live.now();
    const shown = live.messages.filter((message) => Date.parse(message.until) > now);
    update(place, shown.map((message) => notice(message, withdraw)));
  };
  live.addEventListener("change", draw);
  setInterval(draw, 30_000); // one that expires goes, though nothing else happens
}

function notice(message, withdraw) {
  const from = message.group ? _("{by} to {group}, {time}", { ...message, time: when(message.at) }) : _("{by} to everybody, {time}", { ...message, time: when(message.at) });
  const back = h("button", { type: "button", class: "btn btn-sm btn-outline-contrast", "data-action": "withdraw", "data-id": message.id }, _("Delete message"));
  return h(
    "div",
    { class: "alert alert-info gl-message", "data-key": message.id },
    h("p", { class: "mb-1" }, message.text),
    h("p", { class: "gl-small mb-0" }, from),
    withdraw ? back : null,
  );
}
