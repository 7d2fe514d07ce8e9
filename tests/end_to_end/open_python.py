"""What lets programs of every account of the machine run this Python, wherever it is."""

import shlex
import stat
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def for_everybody() -> list[str]:
    """Return what to put before a command; empty where others can run this Python as it is.

    A Python below a folder that others cannot enter (root's home) is shown alone in it, in
    a mount namespace of the command's own: nothing outside changes. Needs root.
    """
    needed = {Path(each).resolve() for each in (sys.base_prefix, sys.prefix, ROOT)}
    hidden: dict[Path, list[Path]] = {}
    for each in sorted(needed):
        if (closed := _first_closed(each)) is not None:
            hidden.setdefault(closed, []).append(each)
    if not hidden:
        return []
    lines = ["set -e"]
    for closed, below in hidden.items():
        lines += _only(closed, below)
    return ["unshare", "--mount", "sh", "-c", "\n".join([*lines, 'exec "$@"']), "sh"]


def as_account(number: int) -> list[str]:
    """Return what to put before a command that another account of no group shall run."""
    return ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]


def _first_closed(path: Path) -> Path | None:
    for each in (*reversed(path.parents), path):
        if not each.stat().st_mode & stat.S_IXOTH:
            return each
    return None


def _only(closed: Path, below: list[Path]) -> list[str]:
    """Return shell lines that leave of a closed folder what is below, open to everybody."""
    there = shlex.quote(str(closed))
    kept = [shlex.quote(str(each)) for each in below]
    lines = []
    for number, each in enumerate(kept):
        lines += [f"kept{number}=$(mktemp -d)", f'mount --bind {each} "$kept{number}"']
    lines.append(f"mount -t tmpfs -o mode=755 gpulease {there}")
    for number, each in enumerate(kept):
        lines += [f"mkdir -p {each}", f'mount --move "$kept{number}" {each}']
        lines.append(f'rmdir "$kept{number}"')
    return lines
