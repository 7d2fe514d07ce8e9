"""One cluster for a test session or a benchmark: its own, or one that stands already."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testcluster import OWN, VARIABLE
from testcluster.cluster import Cluster


@contextmanager
def running_cluster(failed: Callable[[], bool] = lambda: False) -> Iterator[Cluster]:
    """Take the cluster that GPULEASE_CLUSTER names, or start one that ends with the block.

    This process moves into its network.  `failed` says at the end whether the logs of our own
    cluster are kept, so that the reason can be found; they are when the block fails, too.
    """
    named = os.environ.get(VARIABLE) or OWN
    if named != OWN:
        standing = Cluster.at(Path(named))
        standing.enter()
        yield standing
        return
    started = Cluster.up(Path(tempfile.mkdtemp(prefix="gplk-")))
    broken = True
    try:
        started.enter()
        yield started
        broken = failed()
    finally:
        started.stop()
        if broken:
            sys.stderr.write(f"\nthe cluster's logs: {started.layout.logs}\n")
        else:
            shutil.rmtree(started.layout.directory)
