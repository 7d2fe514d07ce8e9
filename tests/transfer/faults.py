"""Makes steps of a commit fail."""

import os

from gpulease.transfer import classes, commit, own, state
from gpulease.transfer.side import Side

#: Steps of a commit, and where each is found.
STEPS_OF = {
    "_bind": commit, "put": own, "apply": state, "apply_methods": classes, "apply_rest": classes,
    "_after": Side,
}  # fmt: skip


class Faults:
    """Makes one step of a commit fail: by an exception, or by the death of the process."""

    def __init__(self):
        self.came = False
        self._undo = lambda: None

    def set(self, kind, point):
        """Let ``point`` fail, once (no kind: none); say if the last did."""
        self._undo()
        came, self.came = self.came, False
        if kind:
            owner = STEPS_OF[point]
            usual = getattr(owner, point)

            def fails(*args, **kwargs):
                if self.came:
                    return usual(*args, **kwargs)
                if kind == "kill":
                    os._exit(9)
                self.came = True
                raise RuntimeError("no room")

            setattr(owner, point, fails)
            self._undo = lambda: setattr(owner, point, usual)
        return came
