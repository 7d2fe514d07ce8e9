"""Pieces between two processes of one machine, through memory that both can reach.

Each side has a memory file in which it puts pieces, and the other side's, from which it takes
them.  The receiver says into which slot a piece goes, so that it alone bounds what is on its way.
Both are mapped, and sealed against being cut short, because reading what was cut off ends a
process.  Used by the wire's thread only.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

#: Bytes of a piece at most.
PIECE = 2**20
#: Pieces that may be on their way to one side: few enough to stay in a processor's cache.
SLOTS = 8
_SIZE = SLOTS * PIECE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
#: Messages that are taken before the wire's other connections have their turn.
_TURN = 16
_FORM = struct.Struct("<BQQQQQ")
_GET, _GIVEN, _WITHDRAWN = 1, 2, 3


class LaneError(Exception):
    """The lane is of no use any more: the peer has gone, or says what means nothing."""


@dataclass(frozen=True)
class Said:
    """One message: a piece is asked for, is in its slot (``length``), or is withdrawn."""

    kind: int
    offer: int
    blob: int
    at: int
    slot: int
    length: int = 0

    @property
    def asks(self) -> bool:
        """True where the peer wants a piece."""
        return self.kind == _GET

    @property
    def withdrawn(self) -> bool:
        """True where the peer no longer offers it."""
        return self.kind == _WITHDRAWN


def new_file() -> int:
    """Return a memory file for the pieces that this process gives; raises ``OSError``."""
    file = os.memfd_create("gpulease-lane", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, _SIZE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return file


def may_be_mapped(file: int) -> bool:
    """Say whether this is memory of a lane's size that nobody can cut short.

    Nor is it in the system's own huge pages, of which there may be none when it is read.
    """
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:  # a pipe, say, or a file on a disk
        return False
    if os.fstatvfs(file).f_bsize != mmap.PAGESIZE:
        return False
    return bool(seals & fcntl.F_SEAL_SHRINK) and os.fstat(file).st_size == _SIZE


class Lane:
    """One end.  ``connection`` keeps messages apart (SEQPACKET); ``mine`` and ``theirs`` are files.

    The peer was proved before: see ``near``.  To copy from and into mapped memory takes a third of
    the time that reading and writing the files takes.  Raises ``OSError`` where they cannot be.
    """

    def __init__(self, connection: socket.socket, mine: int, theirs: int) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._mine = mine
        self._theirs = theirs
        self._put = memoryview(mmap.mmap(mine, _SIZE))
        self._took = memoryview(mmap.mmap(theirs, _SIZE, prot=mmap.PROT_READ))
        self._free = list(range(SLOTS))
        self._has_memory: set[int] = set()

    def fileno(self) -> int:
        """Return what to poll."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close the connection and both files, and let go of their memory."""
        self._connection.close()
        for view in (self._put, self._took):
            view.release()
        os.close(self._mine)
        os.close(self._theirs)

    # ---- the receiver

    @property
    def room(self) -> bool:
        """True while another piece may be asked for."""
        return bool(self._free)

    def ask(self, offer: int, blob: int, at: int, _length: int = 0) -> None:
        """Ask for a piece; there must be room."""
        self._send(Said(_GET, offer, blob, at, self._free.pop()))

    def flush(self) -> None:
        """Nothing: each piece is asked for at once."""

    def take(self, said: Said, into: memoryview | None) -> None:
        """Copy what was given to where it stays, if it is still wanted, and free its slot."""
        if said.slot >= SLOTS or said.slot in self._free:
            raise LaneError("a slot that was not asked for")
        if into is not None:
            if into.nbytes > PIECE:
                raise LaneError("a piece that is too long")
            into[:] = self._took[said.slot * PIECE :][: into.nbytes]
        self._free.append(said.slot)

    # ---- the giver

    def put(self, slot: int, data: memoryview) -> None:
        """Copy a piece into its slot."""
        if slot >= SLOTS or data.nbytes > PIECE:
            raise LaneError("a slot that does not exist")
        if slot not in self._has_memory:
            try:  # to write where no memory can be had ends a process
                os.posix_fallocate(self._mine, slot * PIECE, PIECE)
            except OSError as error:
                raise LaneError(f"no memory for a piece: {error}") from None
            self._has_memory.add(slot)
        self._put[slot * PIECE :][: data.nbytes] = data

    def given(self, asked: Said, length: int | None) -> None:
        """Tell that a piece is in its slot, or (None) that it is withdrawn."""
        kind = _WITHDRAWN if length is None else _GIVEN
        self._send(Said(kind, asked.offer, asked.blob, asked.at, asked.slot, length or 0))

    # ---- both

    def messages(self) -> Iterator[Said]:
        """Yield what has come, a turn's worth; raises ``LaneError`` when the peer is gone."""
        for _ in range(_TURN):
            try:
                data = self._connection.recv(_FORM.size + 1)
            except BlockingIOError:
                return
            except OSError as error:
                raise LaneError(str(error)) from None
            if len(data) != _FORM.size or data[0] not in {_GET, _GIVEN, _WITHDRAWN}:
                raise LaneError("the peer hung up" if not data else "no message of a lane")
            yield Said(*_FORM.unpack(data))

    def _send(self, said: Said) -> None:
        """Send; a peer that is gone or reads nothing is hung up on, and ``messages`` tells."""
        fields = said.kind, said.offer, said.blob, said.at, said.slot, said.length
        try:
            self._connection.send(_FORM.pack(*fields))
        except OSError:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
