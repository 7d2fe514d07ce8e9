"""What a person or their notebook asks for: one frozen value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """What a person or their notebook asked for; ``gpu_class`` ``None`` is the default class.

    ``wanted`` is how long in seconds (``None``: as long as the policy allows).  ``project`` is what
    it is charged to; ``None`` is ``charged_to``'s choice.  ``needs`` is as people write it.  The
    ``count`` devices are divided equally among ``nodes``.  With ``min_count`` of them it can live
    as well (``None``: all or nothing); of a class that is a part of a card, with ``at_least`` so
    many percent of it.  ``steps``: see ``parts.in_parts``, which alone sets them.
    """

    user: str
    server: str
    gpu_class: str | None = None
    count: int = 1
    wanted: float | None = None
    kernel_id: str | None = None
    origin: str = "magic"
    groups: tuple[str, ...] = ()
    project: str | None = None
    in_quota_only: bool = False
    server_ready: bool = True
    batch: bool = False
    needs: str = ""
    nodes: int = 1
    min_count: int | None = None
    at_least: int | None = None
    steps: tuple[int, ...] = ()
