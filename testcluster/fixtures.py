"""The fixtures that give tests a cluster; the whole suite's conftest.py takes them in.

GPULEASE_CLUSTER says which: `own` for one that lives as long as the test session, or the directory
of one that `python -m testcluster up` started.  Without it the tests are skipped.
"""

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from testcluster import VARIABLE
from testcluster.machine import why_not

if TYPE_CHECKING:
    from testcluster.cluster import Cluster


def why_no_cluster() -> str:
    """Return why tests with a cluster cannot run in this session, or an empty string."""
    if not os.environ.get(VARIABLE):
        return "`make test-cluster` runs it"
    reason = why_not()
    if reason:
        return reason
    from testcluster.build import missing_programs

    missing = ", ".join(each.name for each in missing_programs())
    return f"not built: {missing} (make setup-cluster)" if missing else ""


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A running cluster; from here on this process is inside its network."""
    from testcluster.running import running_cluster

    with running_cluster(lambda: bool(request.session.testsfailed)) as running:
        yield running


@pytest.fixture
def namespace(cluster: "Cluster") -> Iterator[str]:
    """A new namespace with its default service account; it goes with all that is in it."""
    from testcluster.pods import delete_namespace, new_namespace

    name = f"t-{uuid.uuid4().hex[:8]}"
    new_namespace(cluster.api, name)
    yield name
    cluster.wait_for_api()
    delete_namespace(cluster.api, name)
