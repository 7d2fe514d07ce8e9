"""``Out`` beside the GPU: what a cell asks of it by number and has not got is in the notebook."""

from __future__ import annotations

from typing import Any

from gpulease.errors import GPULeaseError


class AwayOut(dict[int, Any]):
    """IPython's ``Out`` of a companion, which has the results of its own cells.

    Those of the notebook come with a cell whose text names them: one by its number, else all.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell.user_ns["_oh"])
        self._shell = shell

    def __missing__(self, key: object) -> Any:
        """Say where the result of an earlier cell may be."""
        if not self._may_be_home(key):
            raise KeyError(key)
        raise GPULeaseError(
            "result_at_home",
            f"Out[{key}] is not on the GPU; if that cell had a result, it is in your notebook.",
            next_step=f"Write Out[{key}] with its number into the GPU cell itself, then it comes"
            " with it; or give the value a name where it is made.",
            status=409,
        )

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (self._may_be_home(key) and self.__missing__(key))

    def get(self, key: int, default: Any = None) -> Any:
        """Return ``Out[key]`` or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - that is what get is here

    def become(self, content: dict[int, Any]) -> None:
        """Hold what the notebook's ``Out`` holds, in its order."""
        self.clear()
        self.update(content)

    def _may_be_home(self, key: object) -> bool:
        return isinstance(key, int) and 0 < key < self._shell.execution_count


def install(shell: Any) -> None:
    """Give a companion's shell this ``Out``."""
    own = AwayOut(shell)
    for space in (shell.user_ns, shell.user_ns_hidden):
        space["_oh"] = space["Out"] = own
    shell.history_manager.output_hist = own
