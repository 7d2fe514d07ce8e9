"""The lease service: REST and events, pages, the control loop, metrics.

Its order is: observe, plan, store the intent, perform.  ``policy`` decides, and ``providers`` know
how leases run.
"""
