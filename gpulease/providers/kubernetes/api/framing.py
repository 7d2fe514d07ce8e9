"""Cuts a stream of bytes into lines, however the network cut it into pieces.

Owns nothing else: pure, so that every cut can be tried.
"""

from __future__ import annotations

#: A pod of the largest size that etcd takes is 1.5 MiB; JSON escapes may triple it.
LONGEST = 8 * 2**20


class Lines:
    """Feed it pieces, get whole lines; what follows the last newline waits for the next piece."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = b""

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that this piece completes, without blank ones.

        Raises:
            OSError: a line is longer than any that the API sends, or is not UTF-8.
        """
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._longest:
            raise OSError(f"a line is longer than {self._longest} bytes")
        try:
            return [line.decode() for line in whole if line.strip()]
        except UnicodeDecodeError as error:
            raise OSError("a line is not UTF-8") from error
