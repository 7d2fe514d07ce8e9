"""What a site's service is ready for: pods that stand ready for the next lease, several nodes."""

from gpulease.protocol import labels
from testcluster.api import Object
from testcluster.layout import NODE
from testcluster.site import shipped
from testcluster.site.site import Site
from tests.helpers import wait_for_async

#: What the service's log says of each.
_SAID = "a pod stands ready"


def ready_pods(site: Site) -> list[Object]:
    """Return the pods that are nobody's and have their place."""
    path = f"/api/v1/namespaces/{shipped.HUB_NAMESPACE}/pods"
    found = site.cluster.api.items(path, labelSelector=labels.WARM)
    return [each for each in found if each["spec"].get("nodeName") == NODE]


async def several_nodes(site: Site, seconds: float) -> None:
    """Install what lets a lease have several pods, and wait until the service has noticed."""
    shipped.apply(site.cluster.api, shipped.SEVERAL_NODES)

    def noticed() -> bool:
        return "a lease may have several pods" in site.log("service").read_text(encoding="utf-8")

    await wait_for_async(noticed, seconds, "the service to know that it may")


async def one_ready(site: Site, seconds: float) -> Object:
    """Wait until one pod stands ready, by the service's own word, and no other is coming or going;
    return it.
    """

    def there() -> Object | None:
        pods = ready_pods(site)
        if len(pods) != 1 or pods[0]["metadata"].get("deletionTimestamp"):
            return None
        said = site.log("service").read_text(encoding="utf-8").splitlines()
        uid = pods[0]["metadata"]["uid"]
        return pods[0] if any(_SAID in each and uid in each for each in said) else None

    found: Object = await wait_for_async(there, seconds, "a pod that stands ready", every=0.1)
    return found
