"""How two ends of a wire find out that they are processes of one user on one machine.

The client listens on a Unix socket and says over the encrypted wire where, with two words that
were made for this.  The caller must be of the same user (the kernel says so, ``SO_PEERCRED``) and
know the first word; the client then proves itself by the second.  Only the other end of the wire
can know them, so nobody else's files are ever looked at.
"""

from __future__ import annotations

import array
import hmac
import logging
import os
import secrets
import socket
import struct
from dataclasses import dataclass, field

from gpulease.wire.lane import Lane, may_be_mapped, new_file

log = logging.getLogger(__name__)

_WORD = 32
#: Connections that are heard until one has proved itself.
_CALLERS = 8
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Meeting:
    """Where the client listens (an abstract name), and the two words; those are never shown."""

    name: str
    call: str = field(repr=False)
    answer: str = field(repr=False)

    @classmethod
    def from_header(cls, head: dict[str, object]) -> Meeting:
        """Return what a ``near`` message says."""
        return cls(str(head["name"]), str(head["call"]), str(head["answer"]))


class Listening:
    """The client's end of a meeting: it ends with a lane, or with ``close``."""

    def __init__(self) -> None:
        name = f"gpulease-{secrets.token_hex(16)}"
        self.meeting = Meeting(name, secrets.token_hex(_WORD), secrets.token_hex(_WORD))
        self._socket = _socket()
        self._socket.bind("\0" + name)
        self._socket.listen(_CALLERS)
        self.callers: list[socket.socket] = []

    def fileno(self) -> int:
        """Return what to poll for callers."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Return a caller of this user, who has yet to say the word; None where it is no such."""
        try:
            caller = self._socket.accept()[0]
        except OSError:
            return None
        caller.setblocking(False)
        if not _is_ours(caller) or len(self.callers) >= _CALLERS:
            caller.close()
            return None
        self.callers.append(caller)
        return caller

    def hear(self, caller: socket.socket) -> Lane | None:
        """Return the lane to a caller that says the word; hang up on any other."""
        self.callers.remove(caller)
        theirs = _heard(caller, self.meeting.call)
        if theirs is None:
            log.warning("a stranger at the door of a transfer wire was sent away")
            caller.close()
            return None
        try:
            mine = new_file()
        except OSError as error:
            log.info("transfer wire: no shared memory here: %s", error)
            caller.close()
            os.close(theirs)
            return None
        lane = _lane(caller, mine, theirs)
        if lane is not None and not _say(caller, self.meeting.answer, mine):
            lane.close()
            return None
        return lane

    def close(self) -> None:
        """Listen no longer."""
        self._socket.close()
        for caller in self.callers:
            caller.close()
        self.callers.clear()


class Calling:
    """The server's end: it calls, and has a lane once the client has answered."""

    def __init__(self, meeting: Meeting) -> None:
        """Call; raises ``OSError`` where nobody of this user listens on this machine."""
        self._meeting = meeting
        self._mine = new_file()
        self._connection = _socket()
        try:
            self._connection.connect("\0" + meeting.name)
            if not _is_ours(self._connection):
                raise PermissionError("another user listens there")
            if not _say(self._connection, meeting.call, self._mine):
                raise ConnectionError("nobody takes what is said there")
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return what to poll for the answer."""
        return self._connection.fileno()

    def hear(self) -> Lane | None:
        """Return the lane where the answer is right."""
        theirs = _heard(self._connection, self._meeting.answer)
        if theirs is None:
            self.close()
            return None
        return _lane(self._connection, self._mine, theirs)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
        os.close(self._mine)


def _lane(connection: socket.socket, mine: int, theirs: int) -> Lane | None:
    """Return the lane, or hang up where its memory cannot be had."""
    try:
        return Lane(connection, mine, theirs)
    except OSError as error:
        log.info("transfer wire: no shared memory here: %s", error)
        connection.close()
        os.close(mine)
        os.close(theirs)
        return None


def _socket() -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    return one


def _is_ours(connection: socket.socket) -> bool:
    """Say whether the peer is a process of this user."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1]) == os.geteuid()


def _say(connection: socket.socket, word: str, file: int) -> bool:
    try:
        socket.send_fds(connection, [word.encode()], [file])
    except OSError:
        return False
    return True


def _heard(connection: socket.socket, word: str) -> int | None:
    """Return the one file that came with the right word; whatever else came is closed."""
    room = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    try:
        data, passed, _, _ = connection.recvmsg(2 * _WORD + 1, room, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None
    files = array.array("i")
    for level, kind, content in passed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    if hmac.compare_digest(data, word.encode()) and len(files) == 1 and may_be_mapped(files[0]):
        return files[0]
    for file in files:
        os.close(file)
    return None
