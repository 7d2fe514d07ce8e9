"""One direction of a sealed stream: AES-GCM with a key of its own and a counter for a nonce.

No nonce is used twice, and nothing is opened out of its order.  The cipher is that of
``cryptography``, which need not be installed: without it there is no second wire.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Bytes of a key, and of the tag behind what is sealed.
KEY, TAG = 32, 16
_NONCE = 12


class SealError(Exception):
    """What came is not what the other end sealed, or not in its place."""


def available() -> bool:
    """Say whether this process can seal."""
    return importlib.util.find_spec("cryptography") is not None


class _Direction:
    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher: AESGCM = AESGCM(key)
        self._wrong: type[Exception] = InvalidTag
        self._in_place = hasattr(AESGCM, "decrypt_into")
        self._count = 0

    def _nonce(self) -> bytes:
        """Return a nonce that no other call returns: it is the place in the order."""
        self._count += 1
        return self._count.to_bytes(_NONCE, "big")


class Sealer(_Direction):
    """The sending end."""

    def seal(self, data: Any, about: bytes, into: memoryview) -> None:
        """Seal ``data`` into memory of its size and the tag's; ``about`` is proved with it."""
        if self._in_place:
            self._cipher.encrypt_into(self._nonce(), data, about, into)
        else:
            into[:] = self._cipher.encrypt(self._nonce(), data, about)


class Opener(_Direction):
    """The receiving end."""

    def open(self, sealed: Any, about: bytes, into: memoryview) -> None:
        """Open what was sealed next into memory of its size; raises ``SealError``.

        What stands in ``into`` after that error means nothing.
        """
        try:
            if self._in_place:
                self._cipher.decrypt_into(self._nonce(), sealed, about, into)
            else:
                into[:] = self._cipher.decrypt(self._nonce(), sealed, about)
        except self._wrong:
            raise SealError("a wrong seal") from None
