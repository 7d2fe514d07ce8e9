"""What the machine must offer before a cluster can start, said by name."""

import os
import shutil
from pathlib import Path

GO = Path("/usr/local/go/bin/go")
CNI_PLUGINS = Path("/usr/lib/cni")

#: Program -> the Debian package that brings it.
PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "gcc": "gcc",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}


def go_program() -> str | None:
    """Return the Go tool, from PATH or from where its own installer puts it."""
    return shutil.which("go") or (str(GO) if GO.exists() else None)


def missing_packages() -> list[str]:
    """Return the Debian packages that are not installed."""
    missing = {package for name, package in PROGRAMS.items() if shutil.which(name) is None}
    if not (CNI_PLUGINS / "bridge").exists():
        missing.add("containernetworking-plugins")
    return sorted(missing)


def why_not() -> str:
    """Return why no cluster can start here, or an empty string; the programs' build excepted."""
    if os.geteuid() != 0:
        return "a cluster needs root"
    packages = missing_packages()
    if packages:
        return f"not installed: {', '.join(packages)} (make setup-cluster)"
    if go_program() is None:
        return "Go is not installed"
    return ""
