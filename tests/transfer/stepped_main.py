"""The companion's process of a stepped pair: nothing happens in it but what it is told to do.

It has no socket and no thread: messages come and go among its orders, and a request is handled
when that is asked for.
"""

import base64
import collections
import traceback

from gpulease.transfer.registry import Borrowed
from gpulease.transfer.switch.away import AwaySide
from gpulease.transfer.switch.expected import Expected
from gpulease.transfer.values.groups import AbandonedError
from gpulease.transfer_next.api import TransferSettings
from gpulease.wire.message import Message
from tests.transfer.companion_main import run


def encoded(message):
    """Return a message as JSON, with nothing in it that a wire would not carry."""
    blobs = [base64.b64encode(bytes(memoryview(b).cast("B"))).decode() for b in message.blobs]
    return {
        "number": message.number, "kind": message.kind, "body": message.body, "blobs": blobs,
        "reply_to": message.reply_to,
    }  # fmt: skip


def decoded(data):
    return Message(
        data["number"], data["kind"], data["body"],
        [bytearray(base64.b64decode(blob)) for blob in data["blobs"]], data["reply_to"],
    )  # fmt: skip


class Outbox:
    """In place of a wire: answers wait here to be fetched."""

    def __init__(self):
        self.sent = []

    def reply(self, to, body, blobs=(), beside=0):
        self.sent.append(encoded(Message(0, "reply", body, list(blobs), to.number)))

    def refuse(self, to, error):
        self.sent.append(encoded(Message(0, "refusal", error.to_problem(), [], to.number)))

    def withdraw(self):
        pass


class SteppedAway(AwaySide):
    """Handles a request when it is told to; ``patience`` is how many looks it lasts for."""

    def __init__(self, space, hidden):
        super().__init__(space, hidden=hidden)
        self._wire = self.outbox = Outbox()
        self._requests = self.waiting = Waiting()
        self._expected = Expected(self.waiting.put)
        self.patience = None

    def _check(self, message):
        usual = super()._check(message)

        def check():
            if self.patience is not None:
                self.patience -= 1
                if self.patience < 0:
                    raise AbandonedError
            usual()

        return check

    def serve(self, patience):
        self.patience = patience
        try:
            self._handle(self.waiting.popleft())
        finally:
            self.patience = None


class Waiting(collections.deque):
    """Requests that nobody has begun to handle."""

    put = collections.deque.append


def main(space, talk):
    hidden = set(space)
    Borrowed._watch = lambda _: None
    away = None
    while (order := talk.hear())["op"] != "end":
        answer = {}
        match order["op"]:
            case "new":
                for name in set(space) - hidden:
                    del space[name]
                away = SteppedAway(space, hidden)
            case "settings":
                away.side.settings = TransferSettings(**order["settings"])
            case "look":
                away.side.registry.borrowed.look(0)
            case "deliver":
                away._enqueue(decoded(order["message"]))
            case "serve":
                away.serve(order["patience"])
            case "start":
                away.expect(order["expect"])
                away.cell_started(order["source"])
            case "run":
                answer["value"] = None
                try:
                    value = run(space, order["source"])
                except BaseException:
                    answer["error"], value = traceback.format_exc(), None
                answer["nothing_new"] = away.cell_ended(order["count"], value)
            case "names":
                answer["names"] = sorted(set(space) - hidden)
        answer["sent"], away.outbox.sent = away.outbox.sent, []
        talk.tell(answer | {"waiting": len(away.waiting)})
