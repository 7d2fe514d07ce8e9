"""Writes into a directory: whole files only, and only over the version that was expected.

Contents are put together in a staging directory beside the files and take their place by a rename;
an interruption at any point leaves whole files.  No path leads outside: parents are walked without
following links.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gpulease.mirror.entries import Entry, Kind
from gpulease.mirror.plan import Step
from gpulease.mirror.rules import STAGING
from gpulease.mirror.scan import Scanner, signature_of
from gpulease.mirror.staging import Staging

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


class MovedOnError(Exception):
    """Another version stands there than was expected; the next pass looks again."""


class Tree:
    """One side's directory.

    Args:
        root: the directory.
        scanner: what was seen of it last; it is told what is written.
    """

    def __init__(self, root: Path, scanner: Scanner) -> None:
        self.root = root
        self._scanner = scanner
        self.staging = Staging(root)

    # ---- contents

    def copy(self, digest: str, path: str) -> bool:
        """Stage a content that stands at ``path`` already; False when it does not any more.

        Raises:
            OSError: no room.
        """
        try:
            with self.reading(path) as descriptor:
                return self.staging.copy(digest, descriptor)
        except MovedOnError:
            return False

    @contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """Open a file that is as it was last seen.

        Raises:
            MovedOnError: it is not.
        """
        with self._parent(path) as (directory, name):
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(name, flags, dir_fd=directory)
            except OSError:
                raise MovedOnError(path) from None
        try:
            if signature_of(os.fstat(descriptor)) != self._scanner.signature(path):
                raise MovedOnError(path)
            yield descriptor
        finally:
            os.close(descriptor)

    # ---- steps

    def apply(
        self, steps: Sequence[Step], each: Callable[[Step], None] = lambda _: None
    ) -> dict[str, str]:
        """Do the steps; return why some were not done, by path.

        Removals come first, innermost first, then what is new, outermost first.  ``each`` is
        called after every step that was done.  ``moved_on`` says that the next pass looks again;
        the other reasons are ``full``, ``refused`` and ``not_empty``.
        """
        failed: dict[str, str] = {}
        removals = sorted((step for step in steps if _removes(step)), key=_depth, reverse=True)
        creations = sorted((step for step in steps if step.then is not None), key=_depth)
        uses = [step.then.mark for step in creations if step.then and step.then.kind is Kind.FILE]
        left = {digest: uses.count(digest) for digest in set(uses)}
        for step in removals:
            self._try(step, self._remove, failed)
            if step.then is None and step.path not in failed:
                each(step)
        for step in creations:
            if step.path in failed:
                continue
            if step.then is not None and step.then.kind is Kind.FILE:
                left[step.then.mark] -= 1
            last = step.then is not None and not left.get(step.then.mark)
            self._try(step, partial(self._create, last=last), failed)
            if step.path not in failed:
                each(step)
        return failed

    def aside(self, path: str, name: str, expected: Entry) -> bool:
        """Give what stands at ``path`` another name; False when another version stands there."""
        try:
            with self._parent(path) as (directory, old), self._parent(name) as (_, new):
                self._check(path, directory, old, expected)
                if _lstat(new, directory) is not None:
                    return False
                os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)
        except (MovedOnError, OSError):
            return False
        self._scanner.wrote(path, None, None)
        return True

    def _try(self, step: Step, act: Callable[[Step], None], failed: dict[str, str]) -> None:
        try:
            act(step)
        except MovedOnError:
            failed[step.path] = "moved_on"
        except OSError as error:
            failed[step.path] = why(error)

    def _remove(self, step: Step) -> None:
        assert step.expected is not None
        with self._parent(step.path) as (directory, name):
            self._check(step.path, directory, name, step.expected)
            if step.expected.kind is Kind.DIRECTORY:
                os.rmdir(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
        self._scanner.wrote(step.path, None, None)

    def _create(self, step: Step, *, last: bool) -> None:
        then = step.then
        assert then is not None
        found = None
        with self._parent(step.path) as (directory, name):
            if then.kind is Kind.DIRECTORY:
                expected = None if _removes(step) else step.expected
                self._check(step.path, directory, name, expected)
                os.mkdir(name, dir_fd=directory)
            elif then.kind is Kind.LINK:
                found = self._link(step, directory, name)
            else:
                found = self._file(step, directory, name, last=last)
        self._scanner.wrote(step.path, then, found)

    def _link(self, step: Step, directory: int, name: str) -> os.stat_result | None:
        draft = self.staging.fresh()
        assert step.then is not None
        draft.symlink_to(step.then.mark)
        try:
            self._place(draft, step, directory, name)
        finally:
            draft.unlink(missing_ok=True)
        return _lstat(name, directory)

    def _file(self, step: Step, directory: int, name: str, *, last: bool) -> os.stat_result | None:
        then = step.then
        assert then is not None
        draft = self.staging.hand_out(then.mark, last=last)
        if draft is None:  # the other side could not send it
            raise MovedOnError(step.path)
        try:
            before = _lstat(name, directory)
            mode = stat.S_IMODE((before or draft.stat()).st_mode) & ~0o111
            draft.chmod(mode | (mode & 0o444) >> 2 if then.executable else mode)
            os.utime(draft, ns=(then.mtime_ns, then.mtime_ns))
            self._place(draft, step, directory, name)
        finally:
            draft.unlink(missing_ok=True)
        return _lstat(name, directory)

    def _place(self, draft: Path, step: Step, directory: int, name: str) -> None:
        """Move a draft to its place, in one step."""
        expected = None if _removes(step) else step.expected
        if expected is None and _linked(draft, step, directory, name):
            return
        self._check(step.path, directory, name, expected)
        try:
            os.rename(draft, name, dst_dir_fd=directory)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._carry_over(draft, directory, name)

    def _carry_over(self, draft: Path, directory: int, name: str) -> None:
        """Move a draft into another file system, through a name that is passed over there."""
        passing = f"{STAGING}{secrets.token_hex(8)}"
        place = Path(f"/proc/self/fd/{directory}")
        try:
            shutil.copy2(draft, place / passing, follow_symlinks=False)
            os.rename(passing, name, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(passing, dir_fd=directory)

    def _check(self, path: str, directory: int, name: str, expected: Entry | None) -> None:
        """See to it that what stands there is the version that was expected."""
        found = _lstat(name, directory)
        if expected is None:
            right = found is None
        elif found is None:
            right = False
        elif expected.kind is Kind.DIRECTORY:
            right = stat.S_ISDIR(found.st_mode)
        elif expected.kind is Kind.LINK:
            is_link = stat.S_ISLNK(found.st_mode)
            right = is_link and os.readlink(name, dir_fd=directory) == expected.mark
        elif expected.kind is Kind.FILE:
            right = signature_of(found) == self._scanner.signature(path)
        else:
            right = True
        if not right:
            raise MovedOnError(path)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the directory that ``path`` lies in; no part of it may be a link.

        Raises:
            MovedOnError: there is no such directory.
        """
        *directories, name = parts(path)
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for each in directories:
                try:
                    inner = os.open(each, _DIRECTORY, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                        raise MovedOnError(path) from None
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor, name
        finally:
            os.close(descriptor)


def _linked(draft: Path, step: Step, directory: int, name: str) -> bool:
    """Put a draft where nothing stands; False where the file system cannot do that in one step.

    Raises:
        MovedOnError: something stands there.
    """
    try:
        os.link(draft, name, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise MovedOnError(step.path) from None
    except OSError:  # another file system, or one without links: look first, then move
        return False
    return True


def parts(path: str) -> list[str]:
    """Return the parts of a relative path.

    Raises:
        MovedOnError: it leads elsewhere, or is none.
    """
    found = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in found):
        raise MovedOnError(path)
    return found


def why(error: OSError) -> str:
    """Return the reason code of a write that failed."""
    if error.errno in _FULL:
        return "full"
    return "not_empty" if error.errno in (errno.ENOTEMPTY, errno.EEXIST) else "refused"


def _removes(step: Step) -> bool:
    """Whether what stands there goes before anything else may stand there."""
    if step.expected is None:
        return False
    if step.then is None:
        return True
    return (step.expected.kind is Kind.DIRECTORY) != (step.then.kind is Kind.DIRECTORY)


def _depth(step: Step) -> tuple[int, str]:
    return step.path.count("/"), step.path


def _lstat(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
