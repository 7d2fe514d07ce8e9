"""Two namespaces of a test's own with the shipped objects in them."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.helm_values import shipped
from tests.hub.conftest import make_spawner, no_cluster

if TYPE_CHECKING:
    from testcluster.api import Api
    from testcluster.cluster import Cluster


__all__ = ["make_spawner", "no_cluster"]  # fixtures of the hub's room


@dataclass(frozen=True)
class Installed:
    """The shipped objects in a cluster, under names of this test's own.

    ``servers`` is the hub's namespace and ``system`` the service's.
    """

    api: "Api"
    servers: str
    system: str

    def object(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return an object as it is named here."""
        return shipped.renamed(document, self.system)

    def load(self, *names: str) -> list[dict[str, Any]]:
        """Return what the chart renders to here."""
        values = {
            "hub": {"namespace": self.servers},
            "leases": {"images": ["quay.io/jupyter/*"]},
        }
        found = shipped.load(*names, values=values, namespace=self.system)
        return [self.object(each) for each in found]

    @property
    def service(self) -> "Api":
        """A client with the rights of the lease service."""
        return self.api.as_account(self.system, "gpulease")


@pytest.fixture(scope="module")
def installed(cluster: "Cluster") -> Iterator[Installed]:
    """What every site has; what is of the whole cluster goes at the end."""
    from testcluster.api import ApiError, path_of
    from testcluster.pods import delete_namespace, new_namespace

    mark = f"t-{uuid.uuid4().hex[:8]}"
    here = Installed(cluster.api, servers=f"{mark}-hub", system=f"{mark}-system")
    made = []
    try:
        new_namespace(here.api, here.servers, {shipped.TEST: here.system})
        new_namespace(here.api, here.system)
        for mine in here.load():
            here.api.create(mine)
            made.append(mine)
        yield here
    finally:
        cluster.wait_for_api()
        for each in reversed(made):
            if each["kind"] in shipped.GLOBAL:
                with contextlib.suppress(ApiError):
                    here.api.delete(path_of(each))
        for namespace in (here.servers, here.system):
            delete_namespace(here.api, namespace)
