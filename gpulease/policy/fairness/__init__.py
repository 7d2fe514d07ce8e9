"""Who is entitled to what: projects' shares of each pool, and whose turn it is in the queue."""

from __future__ import annotations

from gpulease.policy.fairness.standing import Node, Tree, standing
from gpulease.policy.fairness.turns import turns

__all__ = ["Node", "Tree", "standing", "turns"]
