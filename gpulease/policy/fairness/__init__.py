"""Who is entitled to what: projects' shares of each pool, and whose turn it is in the queue."""

from __future__ import annotations

from gpulease.policy.fairness.fair_order import turns
from gpulease.policy.fairness.standing import standing
from gpulease.policy.fairness.tree import Node, Tree

__all__ = ["Node", "Tree", "standing", "turns"]
