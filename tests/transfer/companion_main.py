"""The other process of the harness: an away side over `__main__`, told what to do."""

import traceback

from gpulease.companion.full_device import explain
from gpulease.transfer.api import TransferSettings
from gpulease.transfer.away import AwaySide
from tests.transfer.faults import Faults


def run(space, source):
    """Execute a cell as a kernel does; return its last expression's value."""
    import ast

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), space) if last else None


def main(space, talk):
    """Do what each order says, until the last one."""
    hidden = set(space)
    faults = Faults()
    first = talk.hear()
    away = AwaySide(space, hidden=hidden, settings=TransferSettings(**first["settings"]))
    endpoint = away.start(first["client_key"], host="127.0.0.1")
    talk.tell({"address": endpoint.address, "server_key": endpoint.server_key})
    while (order := talk.hear())["op"] != "end":
        if order["op"] == "run":
            away.cell_started(order["source"])
            error, value = "", None
            talk.tell({"running": True})
            try:
                value = run(space, order["source"])
            except BaseException as raised:
                values = {name: space[name] for name in away.side.names() if name in space}
                if sentence := explain(values, raised):
                    raised.add_note(sentence)
                del values
                error = traceback.format_exc()
            away.cell_ended(order["count"], value)
            del value  # else this holds the result of the last cell
            names = sorted(set(space) - hidden)
            talk.tell({"error": error, "names": names})
        elif order["op"] == "fault":
            talk.tell({"came": faults.set(order["kind"], order["point"])})
        elif order["op"] == "park":
            report = away.park(order["path"])
            talk.tell({"done": report.done, "blockers": [b.name for b in report.blockers]})
    away.close()
