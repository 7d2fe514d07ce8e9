"""The cluster's own network, mount and process namespaces, and their complete removal.

Everything the cluster runs lives in one process namespace: when its first process ends, the kernel
ends the rest, containers too, and with the last of them the mounts are gone.  The root namespaces
stay untouched.
"""

import ctypes
import fcntl
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpulease.companion.tree import die_with_parent
from testcluster.layout import FIRST_SERVICE, NODE_ADDRESS, RECORDS, SERVICE_NETWORK, Layout

CGROUPS = Path("/sys/fs/cgroup")
_WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
_WATCHERS_NEEDED = 1024
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

#: Directories of the machine that the cluster's programs insist on, each replaced by one of ours.
_OWN_DIRECTORIES = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/log", "/var/lib/kubelet")


def run(*command: str) -> None:
    """Run a program of the system; raises RuntimeError with its own words when it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def claim(directory: Path) -> Layout:
    """Take the first free number on this machine; what a dead cluster left is removed."""
    with _numbers_held():
        for number in itertools.count():
            layout = Layout(directory=directory, number=number)
            holder = holder_of(layout)
            if holder is None or not _alive(holder):
                break
        _remove(layout)
        # Until the namespaces stand, the starting process itself is the holder.
        _note_holder(layout, os.getpid())
        return layout


@contextmanager
def _numbers_held() -> Iterator[None]:
    """Keep others from taking or giving back a number.

    One that is half given back looks free, and the rest of its removal would meet its next owner.
    """
    RECORDS.mkdir(exist_ok=True)
    with (RECORDS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def holder_of(layout: Layout) -> int | None:
    """Return the process that keeps the cluster's namespaces alive, as the machine counts."""
    holder = _record(layout).get("holder")
    return int(holder) if holder else None


def _record(layout: Layout) -> dict[str, int | str]:
    try:
        found: dict[str, int | str] = json.loads(_read(layout.record))
    except ValueError:  # there is none
        return {}
    return found


def _note_holder(layout: Layout, holder: int) -> None:
    note = {"holder": holder, "directory": str(layout.directory)}
    written = layout.record.with_suffix(".new")
    written.write_text(json.dumps(note), encoding="utf-8")
    written.replace(layout.record)  # nobody reads half a record


def make(layout: Layout, pause: Path, attached: bool) -> int:
    """Make the namespaces and return their first process.

    `attached`: the cluster ends when the calling process does, even by SIGKILL.
    """
    _raise_watch_limit()
    _make_control_group(layout)
    _make_network(layout)
    command = [
        *("nsenter", f"--net=/run/netns/{layout.network_namespace}", "--"),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
        *("--mount-proc", str(pause)),
    ]
    with (layout.logs / "namespaces.log").open("ab") as log:
        outer = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent if attached else None,
        )
    outer.returncode = 0  # it may outlive this process on purpose: no warning about that
    holder = _child_of(outer.pid, pause.name, log.name)
    _note_holder(layout, holder)
    _make_mounts(layout, holder)
    return holder


def entering(holder: int) -> list[str]:
    """Return the command prefix that runs a program inside all three namespaces."""
    return ["nsenter", "--target", str(holder), "--mount", "--net", "--pid", "--"]


def enter_network(layout: Layout) -> None:
    """Move the calling thread, and the threads and processes it starts, into the network."""
    _set_network(Path(f"/run/netns/{layout.network_namespace}"))


@contextmanager
def visiting(layout: Layout) -> Iterator[None]:
    """Run a block inside the network and come back to the one before."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    enter_network(layout)
    try:
        yield
    finally:
        _set_network(before)
        os.close(before)


def _set_network(place: Path | int) -> None:
    descriptor = os.open(place, os.O_RDONLY) if isinstance(place, Path) else place
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns refused")
    finally:
        if isinstance(place, Path):
            os.close(descriptor)


def remove(layout: Layout) -> None:
    """End every process of the cluster and remove what it left; safe to repeat."""
    with _numbers_held():
        if _record(layout).get("directory") == str(layout.directory):  # not its next owner's
            _remove(layout)


def _remove(layout: Layout) -> None:
    holder = holder_of(layout)
    if holder is not None and holder != os.getpid() and _is_pause(holder):
        os.kill(holder, signal.SIGKILL)
        _wait(lambda: not _alive(holder), 60.0, "the cluster's first process to end")
    if Path(f"/run/netns/{layout.network_namespace}").exists():
        run("ip", "netns", "delete", layout.network_namespace)
    for hierarchy in _hierarchies():
        _remove_group(hierarchy / layout.control_group)
    layout.record.unlink(missing_ok=True)


def _make_network(layout: Layout) -> None:
    name = layout.network_namespace
    run("ip", "netns", "add", name)
    inside = ("nsenter", f"--net=/run/netns/{name}", "--")
    steps = f"""
        ip link set lo up
        ip link add cni0 type bridge
        ip addr add {NODE_ADDRESS}/24 dev cni0
        ip link set cni0 up
        echo 1 >/proc/sys/net/ipv4/ip_forward
        ip route replace {SERVICE_NETWORK} dev cni0
        for chain in PREROUTING OUTPUT; do
            iptables -t nat -A $chain -d {FIRST_SERVICE}/32 -p tcp --dport 443 \
                -j DNAT --to-destination {NODE_ADDRESS}:6443
        done
    """
    run(*inside, "sh", "-ec", steps)


def _make_mounts(layout: Layout, holder: int) -> None:
    for path in _OWN_DIRECTORIES:
        Path(path).mkdir(parents=True, exist_ok=True)
    steps = "\n".join(f"mount -t tmpfs gpulease {path}" for path in _OWN_DIRECTORIES)
    steps += f"""
        mkdir -p {layout.directory}/containerd
        mount -t tmpfs gpulease {layout.directory}/containerd
        mkdir -p /var/lib/kubelet/device-plugins
        mount --bind {layout.plugins} /var/lib/kubelet/device-plugins
        mount --make-rshared /
    """
    run(*entering(holder), "sh", "-ec", steps)


def _raise_watch_limit() -> None:
    """Allow more file watchers, machine-wide: Debian's 128 do not serve two clusters."""
    if int(_WATCHERS.read_text(encoding="ascii")) < _WATCHERS_NEEDED:
        _WATCHERS.write_text(str(_WATCHERS_NEEDED), encoding="ascii")


def _hierarchies() -> list[Path]:
    """Return the roots of version 1's controllers, or version 2's one root."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _make_control_group(layout: Layout) -> None:
    for hierarchy in _hierarchies():
        group = hierarchy / layout.control_group
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":  # version 1: empty until somebody says so
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((hierarchy / name).read_text())


def _remove_group(group: Path) -> None:
    if not group.exists():
        return
    for inner in sorted(group.rglob("*"), key=lambda path: -len(path.parts)):
        if inner.is_dir():
            _remove_directory(inner)
    _remove_directory(group)


def _remove_directory(group: Path) -> None:
    def gone() -> bool:
        try:
            group.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # the kernel is still ending its processes
            return False
        return True

    _wait(gone, 60.0, f"control group {group} to be empty")


def _child_of(outer: int, name: str, log: str) -> int:
    """Return the process that unshare forked, once it has become the pause program."""

    def child() -> int:
        if not _alive(outer):
            raise RuntimeError(f"no namespaces: {_read(Path(log)).strip()}")
        text = _read(Path(f"/proc/{outer}/task/{outer}/children"))
        pid = int(text.split()[0]) if text.split() else 0
        return pid if pid and _read(Path(f"/proc/{pid}/comm")).strip() == name else 0

    return _wait(child, 60.0, "the cluster's first process")


def _is_pause(pid: int) -> bool:
    return _read(Path(f"/proc/{pid}/comm")).strip() == "pause"


def _alive(pid: int) -> bool:
    return "(zombie)" not in _read(Path(f"/proc/{pid}/status")) and Path(f"/proc/{pid}").exists()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _wait(condition: Callable[[], int], seconds: float, what: str) -> int:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
    return int(value)
