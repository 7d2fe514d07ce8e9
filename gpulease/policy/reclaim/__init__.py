"""Who gives a device back, when and for whom; the last steps of a plan.

It is told in this order: ``reclaim_candidates``, who may ask for something back and what each
holder would lose; ``over_quota`` and ``preemption_targets``, who is chosen, and when nothing is
taken; ``leaving``, what is told.
"""
