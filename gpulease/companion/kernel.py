"""The companion kernel: an IPython kernel that runs the cells of one home kernel.

It keeps no history and reads no start-up files (home did both already), and takes its orders from a
supervisor over a private line.  ipykernel is imported before the home kernel is known, so that a
process started ahead becomes a companion in a moment.  ``cellkernel`` has the differences from
ipykernel's kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import builtins
import os
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import IPython
import zmq
from ipykernel.heartbeat import Heartbeat
from ipykernel.kernelapp import IPKernelApp
from tornado.ioloop import IOLoop
from traitlets.config import Config
from zmq.auth.thread import ThreadAuthenticator

from gpulease.channel.conversation import Message
from gpulease.channel.pair import ChildEnd
from gpulease.companion.cellkernel import (
    CellWatch,
    CompanionKernel,
    LoopWork,
    NoShellThread,
    install_out,
)
from gpulease.companion.tree import die_with_parent
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LEASE
from gpulease.sides.blocks import gpu
from gpulease.sides.environment import take_mark
from gpulease.sides.logs import keep_from_cells
from gpulease.sides.versions import python_version, versions
from gpulease.transfer.api import TransferSettings
from gpulease.transfer.away import AwaySide

_LOOK_SECONDS = 1.0
#: Jupyter's, each with a port.
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class CompanionApp(IPKernelApp):
    """The kernel application without what home has done already, for its home kernel alone."""

    name = "ipython-kernel"
    home_only: HomeOnly

    def _apply_curve_server_options(self, socket: zmq.Socket[Any]) -> None:
        """Let nobody but home in; ipykernel calls this before it binds a channel."""
        super()._apply_curve_server_options(socket)
        assert self.context is not None  # ipykernel makes it before its first socket
        self.home_only.guard(self.context)
        close_to_strangers(socket)

    def init_heartbeat(self) -> None:
        """Start the heartbeat in a context of its own, as ipykernel does, for home alone."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        close_to_strangers(context)
        self.home_only.guard(context)
        self.heartbeat = Heartbeat(  # type: ignore[no-untyped-call]
            context,
            (self.transport, self.ip, self.hb_port),
            curve_publickey=self.curve_publickey,
            curve_secretkey=self.curve_secretkey,
        )
        self.hb_port = self.heartbeat.port
        self.heartbeat.start()

    def init_control(self, context: Any) -> None:
        """Have no thread between the shell channel and the cells: home asks one thing at a time."""
        super().init_control(context)  # type: ignore[no-untyped-call]
        self.shell_channel_thread = NoShellThread()
        # The debugger's way to the shell channel: it has another key, and there is no debugger.
        self.debug_shell_socket.close()

    def close(self) -> None:
        """Close the channels, after those who answer for them."""
        self.home_only.stop()
        super().close()  # type: ignore[no-untyped-call]

    def load_config_file(self, *args: Any, **kwargs: Any) -> None:
        """Read no configuration: extensions and start-up lines ran at home."""

    def init_code(self) -> None:
        """Run no start-up files."""


class Companion:
    """One companion process from its first import to its end."""

    def __init__(self, fd: int) -> None:
        self._link = ChildEnd(fd, self._called)
        self._order: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._ready: Future[Message] = Future()
        self._away: AwaySide | None = None
        self._app: Any = None
        self._own: frozenset[int] = frozenset()  # idents of threads that are not the user's
        self._told: dict[str, Any] = {}
        self._loop_work: LoopWork | None = None

    def run(self) -> None:
        """Wait for the order to start, become a kernel, return when it ends."""
        threading.Thread(target=self._obey, name="gpulease-orders", daemon=True).start()
        order = self._order.get()
        try:
            ready = self._begin(order)
        except Exception as error:
            detail = f"The companion could not start: {type(error).__name__}: {error}."
            self._ready.set_exception(GPULeaseError("companion_failed", detail, status=500))
            raise
        IOLoop.current().add_callback(self._say_ready, ready)
        self._app.start()
        if self._away is not None:
            self._away.close()

    def _obey(self) -> None:
        """Do what the supervisor says, beside the main thread; end when it is gone."""
        self._link.serve()
        os._exit(1)

    def _called(self, name: str, args: Message) -> Any:
        if name == "prepare":
            return python_version()
        if name == "start":
            self._order.put(args)
            return self._ready
        if name == "stop":
            loop = self._app.io_loop
            loop.add_callback(loop.stop)
            return None
        if name == "park" and self._away is not None:
            return self._park(args)
        raise GPULeaseError("malformed", f"A companion knows no call {name!r} now.")

    def _begin(self, order: dict[str, Any]) -> dict[str, Any]:
        take_mark(order["environ"][ENV_LEASE])  # first: it needs the environment of the start
        os.environ.clear()
        os.environ.update(order["environ"])
        sys.path[:] = _path(order["path"], merge=order["merge_path"])
        moved = _change_directory(order["cwd"])
        self._app = _application(order)
        watch = CellWatch(self._link)
        self._app.kernel.watch = watch
        # On the GPU `with gpu():` and `@gpu.run` do nothing; hidden, so never carried.
        self._app.kernel.shell.push({"gpu": gpu}, interactive=False)
        install_out(self._app.kernel.shell)
        # While a cell runs it is there already: libraries ask it, as they are imported, where they
        # are, and the first import of one may be that of a value that arrives.
        builtins.get_ipython = IPython.get_ipython  # type: ignore[attr-defined]
        self._app.kernel.shell.ask_exit = _stay
        self._away = watch.away = _away_side(self._app.kernel.shell, order["park_limit"])
        endpoint = self._away.start(
            order["wire_key"],
            host=order["ip"],
            port=order["wire_port"],
            bulk_port=order.get("bulk_port"),
        )
        return {
            "connection": _connection(self._app),
            "wire_address": endpoint.address,
            "wire_key": endpoint.server_key,
            "packages": versions(order["packages"]),
            "notes": [] if moved else [f"The directory {order['cwd']} does not exist here."],
        }

    async def _say_ready(self, ready: dict[str, Any]) -> None:
        """Everything that runs now is ours; what appears later is the user's."""
        self._loop_work = LoopWork(asyncio.get_running_loop())
        looker = threading.Thread(target=self._look, name="gpulease-look", daemon=True)
        looker.start()
        self._own = frozenset(sys._current_frames())  # noqa: SLF001 - the only complete list
        baseline = sorted(int(name) for name in os.listdir("/proc/self/task"))  # noqa: PTH208
        self._ready.set_result({**ready, "infrastructure": baseline})

    def _look(self) -> None:
        """Once a second, tell which threads and tasks live; only what changed is sent."""
        self._ready.result()
        pause = threading.Event()
        while not pause.wait(_LOOK_SECONDS):
            transfers = self._away.thread_ids() if self._away is not None else frozenset()
            ours = {t.ident for t in threading.enumerate() if t.native_id in transfers}
            alive = set(sys._current_frames())  # noqa: SLF001
            state = {
                "type": "threads",
                "threads": len(alive - self._own - ours),
                "tasks": self._loop_work.alive if self._loop_work is not None else 0,
                "transfers": sorted(transfers),
            }
            if state != self._told:
                self._told = state
                try:
                    self._link.push(state)
                except OSError:
                    return

    def _park(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._away is not None
        try:
            report = self._away.park(order["path"], order["limit"])
        except Exception as error:  # noqa: BLE001 - told to the supervisor, which names the loss
            detail = f"{type(error).__name__}: {error}"
            return {"done": False, "parked": 0, "blockers": [], "detail": detail}
        blockers = [
            {"name": b.name, "reason": "unparkable", "sentence": b.blocker, "size": b.size}
            for b in report.blockers
        ]
        said = {"done": report.done, "parked": report.parked, "blockers": blockers}
        return {**said, "detail": "" if report.done else "time ran out"}


_DOMAIN = "gpulease"


class HomeOnly:
    """Admits only the home kernel, known by its key, to a companion's Jupyter channels.

    Each context that has such channels asks here about a client (ZAP).  jupyter_client has the
    kernel's own key pair serve its clients too, so without this anyone who knows the public half is
    let in: https://github.com/jupyter/jupyter_client/pull/1109.

    Args:
        client_key: the home kernel's public key (Z85).
    """

    def __init__(self, client_key: str) -> None:
        self._client_key = client_key.encode()
        self._authenticators: list[ThreadAuthenticator] = []
        self._guarded: list[zmq.Context[Any]] = []

    def guard(self, context: zmq.Context[Any]) -> None:
        """Ask here about each client of ``context``; call it before a socket of it is bound."""
        if context in self._guarded:
            return
        self._guarded.append(context)
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve_callback(_DOMAIN, credentials_provider=self)
        self._authenticators.append(authenticator)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        """Answer an authenticator: is this the home kernel's key?"""
        return key == self._client_key

    def stop(self) -> None:
        """Let nobody in any more; without this the contexts could not end."""
        for authenticator in self._authenticators:
            authenticator.stop()
        self._authenticators.clear()


def close_to_strangers(socket: zmq.Socket[Any] | zmq.Context[Any]) -> None:
    """Refuse every client of ``socket``, or of a context's sockets, while nobody answers for it."""
    socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN.encode())
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _away_side(shell: Any, park_limit: int) -> AwaySide:
    settings = TransferSettings(park_limit=park_limit)
    return AwaySide(shell.user_ns, hidden=frozenset(shell.user_ns_hidden), settings=settings)


def _application(order: dict[str, Any]) -> Any:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShellApp.exec_PYTHONSTARTUP = False
    app = CompanionApp.instance(
        config=config,
        kernel_class=CompanionKernel,
        outstream_class="gpulease.companion.cellkernel.QuietStream",
        connection_file=order["connection_file"],
    )
    app.home_only = HomeOnly(order["wire_key"])
    app.ip = order["ip"]
    for name, port in zip(CHANNELS, order["ports"], strict=True):
        setattr(app, f"{name}_port", port)  # 0: the system chooses
    app.curve_publickey, app.curve_secretkey = zmq.curve_keypair()
    app.parent_handle = 0  # the private line ends with the supervisor; no polling of parents
    app.log_level = 50
    with _without_debugger():
        app.initialize([])  # type: ignore[no-untyped-call]
    keep_from_cells(app.kernel)
    return app


def _connection(app: Any) -> dict[str, Any]:
    """Return where home finds the channels, without the secret key: home has keys of its own."""
    found = {**app.get_connection_info(), "key": app.session.key.decode()}
    del found["curve_secretkey"]
    return found


@contextmanager
def _without_debugger() -> Iterator[None]:
    """Let ipykernel find no debugger: home's is the one that front ends reach.

    Its import takes as long as all else that makes this a kernel.  User code may import it.
    """
    known = sys.modules.get("debugpy")
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if known is None:
            del sys.modules["debugpy"]
        else:
            sys.modules["debugpy"] = known


def _stay() -> None:
    """Stand in for what ``quit()`` asks: the companion belongs to the lease, not to a cell."""
    print("quit() ends nothing on the GPU; %gpu return gives the GPU back.")  # noqa: T201


def _path(homes: list[str], *, merge: bool) -> list[str]:
    """Return where modules are looked for: as at home; in another image, also as here."""
    if not merge:
        return homes
    found = [entry for entry in homes if not entry or Path(entry).exists()]
    return found + [entry for entry in sys.path if entry not in found]


def _change_directory(cwd: str) -> bool:
    try:
        os.chdir(cwd)
    except OSError:
        return False
    return True


def main() -> None:
    """Run ``python -m gpulease.companion.kernel --link FD``."""
    parser = argparse.ArgumentParser(prog="gpulease.companion.kernel")
    parser.add_argument("--link", type=int, required=True, help="descriptor of the private line")
    die_with_parent()
    Companion(parser.parse_args().link).run()


if __name__ == "__main__":
    main()
