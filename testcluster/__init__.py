"""A real Kubernetes cluster for the tests, on one machine, without an image registry.

`python -m testcluster up DIR` starts one for development; the fixture `cluster` starts one
for the tests, or uses the one that GPULEASE_CLUSTER names.
"""

#: Names the cluster that tests take: ``OWN``, or the directory of one that runs.
VARIABLE = "GPULEASE_CLUSTER"
OWN = "own"
