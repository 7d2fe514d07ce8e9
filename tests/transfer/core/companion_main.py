"""The other process of the core's pair: a side over `__main__`, told what to do."""

import pickle
import traceback

from gpulease.transfer import sending
from gpulease.transfer.api import StageError
from gpulease.transfer.side import Side
from tests.transfer.companion_main import run

sending.OBJECTS = -1  # everything counts as large


def main(space, talk):
    """Do what each order says, until the last one."""
    side = Side("a", space, hidden=set(space))
    packed = []
    while (order := talk.hear())["op"] != "end":
        op = order["op"]
        try:
            answer = _do(side, space, talk, order, packed)
        except BaseException as raised:
            answer = {"error": traceback.format_exc(), "refused": _refusal(raised)}
        talk.tell(answer)
        if op == "pack" and not answer.get("error"):
            talk._connection.send_bytes(pickle.dumps(packed[0], protocol=5))


def _refusal(raised):
    return str(raised) if isinstance(raised, StageError) else ""


def _do(side, space, talk, order, packed):
    match order["op"]:
        case "run":
            run(space, order["source"])
            return {"names": side.names()}
        case "pack":
            asked = {name: order[name] for name in ("hand_over", "reached")}
            packed[:] = [side.pack(order["needed"], **asked)]
        case "acknowledge":
            side.acknowledge(packed.pop())
        case "take":
            parcel = pickle.loads(talk._connection.recv_bytes())
            side.commit(side.stage(parcel))
        case "lacking":
            return {"names": sorted(side.lacking(order["names"]))}
    return {"away": {name: [away.reason, away.can_come] for name, away in side.away().items()}}
