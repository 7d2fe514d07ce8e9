"""A process of the harness, forked from one that has imported what all of them need.

Importing the two sides anew took longer than most tests do.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import types
from multiprocessing import forkserver
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTEXT = multiprocessing.get_context("forkserver")
#: What a companion that stood ready has imported ahead, as the product's own does.
AHEAD = ["matplotlib.pyplot", "pandas", "PIL.Image", "sklearn.ensemble", "sklearn.pipeline"]
CONTEXT.set_forkserver_preload(["tests.transfer.companion_main", "numpy", *AHEAD])


class Talk:
    """One end of a pipe that carries JSON objects."""

    def __init__(self, connection):
        self._connection = connection

    def tell(self, order):
        self._connection.send_bytes(json.dumps(order).encode())

    def hear(self):
        """Return the next object; raise EOFError where the other end is closed."""
        return json.loads(self._connection.recv_bytes())

    def hang_up(self):
        self._connection.close()


class Child(Talk):
    """A process that runs ``serve(namespace of __main__, talk)``."""

    def __init__(self, serve):
        _start_server()
        ours, theirs = CONTEXT.Pipe()
        super().__init__(ours)
        self.process = CONTEXT.Process(target=_enter, args=(serve, theirs, dict(os.environ)))
        self.process.start()
        theirs.close()

    def ask(self, order):
        self.tell(order)
        return self.hear()

    def kill(self):
        self.process.kill()
        self.process.join()
        self.hang_up()

    def close(self):
        """Tell it to end, and kill it if it does not."""
        with contextlib.suppress(OSError):  # it died meanwhile
            self.tell({"op": "end"})
        self.process.join(20)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.hang_up()


def _start_server():
    with pytest.MonkeyPatch.context() as patch:
        # The server imports before it is told the path (python/cpython#117378).
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.setenv("PYTHONHASHSEED", os.environ.get("PYTHONHASHSEED", "0"))
        forkserver.ensure_running()


def _enter(serve, connection, environ):
    os.environ.clear()
    os.environ.update(environ)
    multiprocessing.set_start_method(None, force=True)  # the test's own is handed down
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    # What cells print is no answer.
    sys.stdout = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - for good
    with contextlib.suppress(EOFError):  # the test ended
        serve(main.__dict__, Talk(connection))
