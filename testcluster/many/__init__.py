"""Many leases at once: servers that kwok plays, and one process that speaks for all companions.

The service (a process of its own under the shipped account), its database, the provider, API
server, scheduler and admission policies are the real ones.  Stand-ins are the hub's API, which
knows whose tokens and servers there are, the notebooks that ask, and what a lease pod's own process
would say with the pod's own token: it proves itself, tells of its life, drains, ends.
"""
