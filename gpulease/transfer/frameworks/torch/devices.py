"""Where a storage belongs: a device that one side has and the other has not.

The tag is the storage's own, not a tensor's attribute, which ``clone`` or a slice would lose.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

_tags: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def tag_of(storage: torch.UntypedStorage) -> str:
    """Return the device on which a storage belongs, '' for this side's own memory."""
    own = storage.device
    return str(own) if own.type != "cpu" else _tags.get(storage, "")


def is_here(tag: str) -> bool:
    """Say whether this process has the device; initialises none."""
    kind = torch.device(tag).type
    backend = getattr(torch, kind, None)
    return backend is not None and bool(backend.is_available())


def empty(size: int, tag: str) -> torch.UntypedStorage:
    """Return a storage of ``size`` bytes on its device, or here with the tag of that device."""
    if not tag:
        return torch.UntypedStorage(size)
    if is_here(tag):
        return torch.UntypedStorage(size, device=tag)
    storage = torch.UntypedStorage(size)
    _tags[storage] = tag
    return storage
