"""What a mirror says to people.  Pure: what was left out and what conflicted in, sentences out."""

from __future__ import annotations

from collections.abc import Sequence

from gpulease.mirror.entries import Left
from gpulease.mirror.plan import Conflict
from gpulease.mirror.rules import IGNORE_FILE, MirrorLimits
from gpulease.sizes import size_text

#: Why a file does not travel.
WHY = {
    "too_large": "larger than {file}, the most that one mirrored file may have",
    "no_room": "the mirror's {total} are used up",
    "unreadable": "it cannot be read",
    "special": "it is no ordinary file",
    "outside": "it is a link that leads out of this directory",
    "busy": "it was being written",
    "full": "the disk or the quota is full",
    "refused": "it could not be written",
}
_ADVICE = {
    "too_large": "read it from a place that both sides mount (ask your admin for a data volume), "
    "or make a smaller extract of it",
    "no_room": f"move what GPU cells do not need elsewhere, or name it in {IGNORE_FILE}",
    "full": "make room and run the cell again",
}
_NAMED = 5


def left_lines(left: Sequence[Left], bounds: MirrorLimits) -> list[str]:
    """Return a line for each reason why files are on one side only, largest files first."""
    lines = []
    for where, what in (("home", "not on the GPU"), ("gpu", "on the GPU only")):
        for why, words in WHY.items():
            found = [each for each in left if (each.where, each.why) == (where, why)]
            if not found:
                continue
            found.sort(key=lambda each: (-each.size, each.path))
            names = ", ".join(_named(each) for each in found[:_NAMED])
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            because = words.format(file=size_text(bounds.file), total=size_text(bounds.total))
            advice = f" To use it there: {_ADVICE[why]}." if why in _ADVICE else ""
            lines.append(f"{names}{more}: {what}, as {because}.{advice}")
    return lines


def conflict_lines(conflicts: Sequence[Conflict]) -> list[str]:
    """Return a sentence for each path that both sides changed."""
    return [_conflict(each) for each in conflicts]


def too_many(bounds: MirrorLimits, *, where: str) -> str:
    """Say that a directory holds more than is mirrored."""
    place = "This directory" if where == "home" else "The directory on the GPU"
    return (
        f"{place} holds more than {bounds.paths} files and directories, so its files are not "
        f"mirrored. Work in a directory of its own (%cd), or name what GPU cells do not need in "
        f"{IGNORE_FILE}."
    )


def _named(left: Left) -> str:
    name = shown(left.path)
    return f"{name} ({size_text(left.size)})" if left.size else name


def _conflict(conflict: Conflict) -> str:
    name = shown(conflict.path)
    if conflict.kept_as:
        return (
            f"{name} was changed here and by the GPU: yours keeps its name, the GPU's is "
            f"{shown(conflict.kept_as)}."
        )
    if conflict.deleted == "home":
        return f"{name} was deleted here and changed by the GPU: it is here again, as changed."
    return f"{name} was changed here and deleted by the GPU: it stays."


def shown(path: str) -> str:
    """Return a path as text; bytes that are no UTF-8 show as question marks."""
    return path.encode("utf-8", "replace").decode()
