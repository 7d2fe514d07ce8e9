"""The other process of the harness: an away side over `__main__`, told what to do."""

import os
import traceback

from gpulease.transfer.values.landing import commit
from gpulease.transfer.values.landing.staging import Staging
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings
from gpulease.transfer_next.choice import away_side


def run(space, source):
    """Execute a cell as a kernel does; return its last expression's value."""
    import ast

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), space) if last else None


def _spoil(unit):
    """Leave a unit in the middle of being written."""
    if type(unit) is list:
        unit.append("half")
    elif isinstance(unit, type):
        unit.kind = "half"


#: Steps of a commit, and where each is found.
STEPS_OF = {
    "apply_content": commit, "_put_in_place": commit, "keep_objects": commit,
    "adopt": Staging, "_lend": Side, "_after_commit": Side,
}  # fmt: skip


class Faults:
    """Makes one step of a commit fail: by an exception, or by the death of the process."""

    def __init__(self):
        self.came = False
        self._undo = lambda: None

    def set(self, kind, point, at):
        """Let call number ``at`` of ``point`` fail, once (no kind: none); say if the last did."""
        self._undo()
        came, self.came = self.came, False
        if kind:
            owner = STEPS_OF[point]
            usual = getattr(owner, point)
            left = iter([False] * at + [True])

            def fails(*args, **kwargs):
                if not next(left, False):
                    return usual(*args, **kwargs)
                if kind == "kill":
                    os._exit(9)
                self.came = True
                if point == "apply_content":
                    _spoil(args[0])
                raise RuntimeError("no room")

            setattr(owner, point, fails)
            self._undo = lambda: setattr(owner, point, usual)
        return came


def main(space, talk):
    """Do what each order says, until the last one."""
    hidden = set(space)
    faults = Faults()
    first = talk.hear()
    os.environ["GPULEASE_ENGINE"] = first["engine"]  # this process has that of an earlier test
    away = away_side(space, hidden=hidden, settings=TransferSettings(**first["settings"]))
    endpoint = away.start(first["client_key"], host="127.0.0.1")
    talk.tell({"address": endpoint.address, "server_key": endpoint.server_key})
    while (order := talk.hear())["op"] != "end":
        if order["op"] == "run":
            if order.get("expect"):
                away.expect(order["expect"])
            away.cell_started(order["source"])
            error, value = "", None
            talk.tell({"running": True})
            try:
                value = run(space, order["source"])
            except BaseException as raised:
                if sentence := away.explain_error(raised):
                    raised.add_note(sentence)
                error = traceback.format_exc()
            nothing_new = away.cell_ended(order["count"], value)
            names = sorted(set(space) - hidden)
            talk.tell({"error": error, "names": names, "nothing_new": nothing_new})
        elif order["op"] == "fault":
            talk.tell({"came": faults.set(order["kind"], order["point"], order["at"])})
        elif order["op"] == "park":
            report = away.park(order["path"], order["seconds"])
            talk.tell({"done": report.done, "blockers": [b.name for b in report.blockers]})
    away.close()
