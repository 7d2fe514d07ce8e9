"""Two real processes that hold one namespace: home in the test, the companion in a child."""

import contextlib
import queue
import sys
import threading
import types

import zmq

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.transfer.api import TransferSettings
from gpulease.transfer.home import HomeSide
from tests.transfer import companion_main
from tests.transfer.child import Child
from tests.transfer.companion_main import run


class Companion(Child):
    """A child process with an AwaySide."""

    def __init__(self, keys, settings=None):
        super().__init__(companion_main.main)
        first = {"client_key": keys.public, "settings": settings or {}}
        answer = self.ask(first)
        self.endpoint = Endpoint(answer["address"], answer["server_key"])


@contextlib.contextmanager
def home_thread():
    """A thread of the notebook's that lives across GPU cells; it does what it is given."""
    jobs, done = queue.SimpleQueue(), queue.SimpleQueue()

    def work():
        while (job := jobs.get()) is not None:
            done.put(job())

    def do(job):
        jobs.put(job)
        return done.get(timeout=60)

    worker = threading.Thread(target=work, name="writer")
    worker.start()
    try:
        yield do
    finally:
        jobs.put(None)
        worker.join()


def close_figures():
    """Have pyplot hold none: what a notebook leaves open is the next one's, too."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


def kept_notes(pair):
    """Return the notes of the last cells about what something holds as it was before."""
    notes = (*pair.last.notes, *pair.after.notes)
    return [note for note in notes if note.reason == "kept_old_object"]


class CellError(AssertionError):
    """A cell on the GPU raised; the text is its traceback."""


class Pair:
    """Home and companion; `home(source)` and `gpu(source)` run cells as a notebook would."""

    def __init__(self, monkeypatch, settings=None, available=None, *, imports_ahead=False):
        close_figures()
        self.main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.main)
        self.ns = self.main.__dict__
        hidden = set(self.ns)
        public, secret = zmq.curve_keypair()
        self.keys = KeyPair(public.decode(), secret.decode())
        self.settings = settings or {}
        self.hidden = hidden
        self.extra = {} if available is None else {"available": available}
        self.imports_ahead = imports_ahead
        self.side = self.make_side()
        self.count = self.homes = 0
        self.companion = None
        #: Whether changes are collected at a cell's end, as the kernel has it, or when asked for.

    def make_side(self):
        settings = TransferSettings(**self.settings)
        side = HomeSide(self.ns, hidden=self.hidden, settings=settings, **self.extra)
        if not self.imports_ahead:
            # Other tests of this process have imported what each companion would then import.
            side._imports.tell = lambda: None
        return side

    def attach(self, parked=""):
        self.companion = Companion(self.keys, self.settings)
        return self.side.connect(self.companion.endpoint, self.keys, parked=parked)

    def home(self, source):
        report = self.side.before_home_cell(source)
        try:
            return run(self.ns, source)
        finally:
            self.homes += 1
            self.side.after_home_cell(self.homes)
            self.last = report

    def start_gpu(self, source):
        """Begin a cell and return while it runs."""
        self.last = self.side.before_gpu_cell(source)
        self.count += 1
        self.companion.tell({"op": "run", "source": source, "count": self.count})
        self.companion.hear()

    def end_gpu(self):
        answer = self.companion.hear()
        self.after = self.side.after_gpu_cell(self.count)
        if answer["error"]:
            raise CellError(answer["error"])
        return answer

    def gpu(self, source):
        self.start_gpu(source)
        return self.end_gpu()

    def leave_parked(self, source, path):
        """Run a GPU cell of a companion that then parks what it can and leaves in good order."""
        self.start_gpu(source)
        self.companion.hear()
        self.companion.ask({"op": "park", "path": str(path)})
        self.side.after_gpu_cell(1)
        if hasattr(self.side, "_behind"):
            self.side._behind.pause()
            self.side.arrivals._staged.clear()
        self.companion.kill()

    def renew(self):
        """End the lease, with what is away at home, and begin another one."""
        self.side.disconnect(died=False)
        self.companion.kill()
        self.attach()

    def restart(self):
        """Begin anew with an empty namespace and a new companion."""
        self.close()
        for name in set(self.ns) - self.hidden:
            del self.ns[name]
        self.side = self.make_side()
        self.attach()

    def close(self):
        close_figures()
        self.side.disconnect(died=False)
        if self.companion is not None:
            self.companion.close()
