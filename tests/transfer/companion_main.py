"""The other process of the harness: an AwaySide over `__main__`, driven by JSON lines."""

import json
import sys
import traceback

from gpulease.transfer.api import TransferSettings
from gpulease.transfer.switch.away import AwaySide


def run(space, source):
    """Execute a cell as a kernel does; return its last expression's value."""
    import ast

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), space) if last else None


def main():
    space = sys.modules["__main__"].__dict__
    hidden = set(space)
    # What cells print is no answer.
    sys.stdout = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - for good
    first = json.loads(sys.stdin.readline())
    if first.get("stepped"):
        from tests.transfer import stepped_main

        stepped_main.main(space, hidden)
        return
    away = AwaySide(space, hidden=hidden, settings=TransferSettings(**first.get("settings", {})))
    endpoint = away.start(first["client_key"], host="127.0.0.1")
    say({"address": endpoint.address, "server_key": endpoint.server_key})
    for line in sys.stdin:
        order = json.loads(line)
        if order["op"] == "run":
            if order.get("expect"):
                away.expect(order["expect"])
            away.cell_started(order["source"])
            error, value = "", None
            say({"running": True})
            try:
                value = run(space, order["source"])
            except BaseException as raised:
                if sentence := away.explain_error(raised):
                    raised.add_note(sentence)
                error = traceback.format_exc()
            nothing_new = away.cell_ended(order["count"], value)
            names = sorted(set(space) - hidden)
            say({"error": error, "names": names, "nothing_new": nothing_new})
        elif order["op"] == "park":
            report = away.park(order["path"], order["seconds"])
            say({"done": report.done, "blockers": [b.name for b in report.blockers]})
        else:
            away.close()
            return


def say(answer):
    print(json.dumps(answer), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    # The notebook's names are its own: what this file needs lives in a module beside `__main__`.
    from tests.transfer import companion_main as _companion_main

    for _name in [n for n in globals() if not n.startswith("_")]:
        del globals()[_name]
    _companion_main.main()
