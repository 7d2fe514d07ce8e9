"""Who gives a device back, when and for whom.

It is told in this order: ``reclaim_candidates``, who may ask for something back and what each
holder would lose; ``over_quota`` and ``preemption_targets``, who is chosen, and when nothing is
taken.  What each of them is told, the planner says.
"""
