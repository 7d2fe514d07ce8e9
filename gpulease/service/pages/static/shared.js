// A shared worker: one websocket to the service for all tabs of one person in this browser.
import { Channel } from "./channel.js";
import { Picture } from "./picture.js";

const ports = new Set();
let channel = null;
let picture = new Picture();

const tell = (message) => ports.forEach((port) => port.postMessage(message));

function start({ prefix, token, language }) {
  picture = new Picture();
  channel = new Channel(prefix, token, language);
  channel.addEventListener("message", ({ detail }) => {
    picture.take(detail);
    tell({ said: detail });
  });
  channel.addEventListener("link", ({ detail }) => tell({ link: detail }));
}

function stop() {
  channel?.close();
  channel = null;
}

function hear(port, data) {
  if (data.hello) {
    ports.add(port);
    if (channel) channel.token = data.hello.token;
    else start(data.hello);
    if (picture.ready) port.postMessage({ said: picture.snapshot() });
    port.postMessage({ link: channel.link });
  }
  if (data.wake) channel?.wake();
  if (data.bye) {
    ports.delete(port);
    if (!ports.size) stop();
  }
}

self.addEventListener("connect", ({ ports: [port] }) => {
  port.addEventListener("message", ({ data }) => hear(port, data));
  port.start();
});
