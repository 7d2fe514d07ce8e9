"""``DataLoader`` without its workers: new ones start on the side that iterates next."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from gpulease.transfer_next.attributes import each_set


class Restart:
    """In place of the workers that a loader kept on the other side (``persistent_workers``)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _reset(self, loader: Any) -> None:
        """Start workers, and draw from the loader's generator what going on would have drawn.

        A first start draws a seed for the workers; those that are there have one.
        """
        mine = torch.Generator().manual_seed(self.seed)
        with each_set([loader], "generator", mine):
            loader._iterator = loader._get_iterator()


def state(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return the attributes of a loader, its live iterator left out."""
    live: Any = loader._iterator
    if live is not None and not isinstance(live, Restart):
        live = Restart(live._base_seed)
    return {**loader.__dict__, "_iterator": live}
