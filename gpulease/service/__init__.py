"""The lease service: REST and events, pages, the reconcile loop, metrics.

Owns the order observe, plan, store the intent, perform.  Refuses to decide (``policy``) and to
know how leases run (``providers``).
"""
