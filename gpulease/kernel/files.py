"""The working directory on the GPU, where home's volume is not mounted there.

The mirror is updated around GPU cells.  Nothing happens where the companion sees home's own files
(``Opened`` names no mirror).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpulease.channel.keys import Endpoint
from gpulease.errors import GPULeaseError
from gpulease.mirror import words
from gpulease.mirror.entries import Left
from gpulease.protocol.control import MirrorView
from gpulease.protocol.service import Blocker
from gpulease.sizes import size_text

if TYPE_CHECKING:
    from gpulease.kernel.attach import Attachment
    from gpulease.mirror.home import HomeEnd
    from gpulease.mirror.passes import PassReport

log = logging.getLogger("gpulease.kernel")
#: How long a supervisor may take to make room for a directory (seconds).
OPEN_SECONDS = 30.0
#: A pass is seen when it takes longer than this, and as often (seconds).
UNSEEN_SECONDS = 0.5


class MirroredFiles:
    """One kernel's mirrored working directory.

    Args:
        attachment: the companion of now, None where there is none.
    """

    def __init__(self, attachment: Callable[[], Attachment | None]) -> None:
        self._attachment = attachment
        self._of: Attachment | None = None  # whose mirror ``_end`` is
        self._end: HomeEnd | None = None
        self._outside = ""  # a working directory that cannot be mirrored, and was named
        self._named: frozenset[Left] = frozenset()

    def close(self) -> None:
        """The companion is gone, or another comes."""
        end, self._end, self._of = self._end, None, None
        self._named = frozenset()
        if end is not None:
            end.close()

    def before(self, show: Callable[[str], None]) -> list[str]:
        """Bring the mirror up to date before a GPU cell; return what is to be said.

        Raises:
            GPULeaseError: the cell would read old files.
        """
        said = self._connect()
        if self._end is not None:
            said += self._say(self._end.sync(_now_and_then(show)))
        return said

    def after(self, show: Callable[[str], None]) -> list[str]:
        """Bring home what a GPU cell wrote; return what is to be said."""
        if self._end is None:
            return []
        try:
            return self._say(self._end.sync(_now_and_then(show)))
        except GPULeaseError as error:
            log.info("files are not home yet: %s", error)
            return [f"Files that this cell wrote are not here yet. {error.sentence}"]
        except KeyboardInterrupt:
            return ["Interrupted: files that this cell wrote are copied with the next GPU cell."]

    def bring_home(self) -> tuple[list[str], list[Blocker]]:
        """Bring the last files home before the lease ends; any thread.

        Returns:
            What is to be said, and which files cannot come.
        """
        if self._end is None:
            return [], []
        try:
            report = self._end.sync()
        except GPULeaseError as error:
            return [], [Blocker(name="files", reason=error.reason, sentence=str(error), size=None)]
        stays = [left for left in report.left if left.where == "gpu"]
        blockers = [
            Blocker(
                name=words.shown(left.path),
                reason="file",
                sentence=words.left_lines([left], self._end.bounds)[0],
                size=left.size or None,
            )
            for left in stays
        ]
        if report.refusal:
            blockers.append(
                Blocker(name="files", reason="file", sentence=report.refusal, size=None)
            )
        return words.conflict_lines(report.conflicts), blockers

    def lines(self) -> list[str]:
        """Return what ``%gpu`` says of files."""
        if self._end is None:
            return []
        report = self._end.last
        if report.refusal:
            return [f"Files: not mirrored. {report.refusal}"]
        size = size_text(report.total)
        first = f"Files: {report.paths} in {self._end.root} are mirrored on the GPU ({size})."
        return [first, *words.left_lines(report.left, self._end.bounds)]

    def explain(self, error_name: str) -> str:
        """Say why a GPU cell may have missed a file; "" when nothing was left out."""
        if error_name not in ("FileNotFoundError", "NotADirectoryError") or self._end is None:
            return ""
        report = self._end.last
        if report.refusal:
            return report.refusal
        missing = [left for left in report.left if left.where == "home"]
        return " ".join(words.left_lines(missing, self._end.bounds))

    def _connect(self) -> list[str]:
        attachment, here = self._attachment(), _working_directory()
        if self._of is not attachment:
            self.close()
        place = attachment.opened.get("mirror", "") if attachment is not None else ""
        if attachment is None or not place or here is None:
            return []
        if self._end is not None and here.is_relative_to(self._end.root):
            return []
        if not here.is_relative_to(place):
            self.close()
            told, self._outside = self._outside == str(here), str(here)
            sentence = f"Files in {here} are not on the GPU: only what lies in {place} is."
            return [] if told else [sentence]
        from gpulease.mirror.home import HomeEnd

        self.close()
        args = {"root": str(here), "wire_key": attachment.wire_keys.public}
        view: MirrorView = attachment.control.call("mirror", args, OPEN_SECONDS)
        endpoint = Endpoint(view["address"], view["key"])
        self._end = HomeEnd(here, endpoint, attachment.wire_keys, view["limit"])
        self._of = attachment
        return []

    def _say(self, report: PassReport) -> list[str]:
        if report.refusal:
            return [] if self._same_left([Left("", report.refusal)]) else [report.refusal]
        said = words.conflict_lines(report.conflicts)
        assert self._end is not None
        if not self._same_left(report.left):
            stays = [left for left in report.left if left.where == "gpu"]
            said += words.left_lines(stays, self._end.bounds)
            number = len(report.left) - len(stays)
            if number:
                what = "1 file is" if number == 1 else f"{number} files are"
                said.append(f"{what} not on the GPU; %gpu names the reasons.")
        return said

    def _same_left(self, left: Sequence[Left]) -> bool:
        now = frozenset(left)
        same, self._named = now == self._named, now
        return same


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed under the kernel
        return None


def _now_and_then(show: Callable[[str], None]) -> Callable[[str], None]:
    shown = time.monotonic()

    def sometimes(text: str) -> None:
        nonlocal shown
        if time.monotonic() - shown > UNSEEN_SECONDS:
            shown = time.monotonic()
            show(text)

    return sometimes
