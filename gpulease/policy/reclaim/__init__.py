"""Who gives a device back, when and for whom.

In this order: ``reclaim_candidates``, who may ask for something back and what each
holder would lose; ``over_quota`` and ``preemption_targets``, who is chosen, and when nothing is
taken.  The planner notifies each of them.
"""
