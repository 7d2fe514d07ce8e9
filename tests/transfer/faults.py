"""Makes steps of the first engine's commit fail."""

import os

from gpulease.transfer.values.landing import commit
from gpulease.transfer.values.landing.staging import Staging
from gpulease.transfer.values.side import Side


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
