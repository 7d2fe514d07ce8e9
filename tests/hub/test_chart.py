"""Each usual way to install the chart: a hub with gpulease, servers that pass, flows that flow."""

import pytest

pytest.importorskip("kubespawner")
from jupyterhub.app import JupyterHub

from gpulease.hub import guard
from gpulease.hub.guard_lines import is_blocker
from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests.pod_network import End, lets
from gpulease.providers.kubernetes.pod_resources.nodes import any_holds
from tests.helm_values import shipped
from tests.hub import chart
from tests.hub.conftest import start

pytestmark = chart.needs_chart

#: Pods' addresses are private.
POD = "10.1.0.7"
INSTANCE = {labels.INSTANCE: labels.APP}
#: Labels and taint of a node with GPUs, in a pool of users' nodes, and of one without.
GPU_NODE = {"nvidia.com/gpu.present": "true", "hub.jupyter.org/node-purpose": "user"}, labels.POOL
USER_NODE = {"hub.jupyter.org/node-purpose": "user"}, ""
every_install = pytest.mark.parametrize("name", chart.INSTALLS)


@pytest.fixture
def configured(tmp_path, monkeypatch):
    return lambda name: chart.configuration(name, tmp_path, monkeypatch)


def base_path(name):
    return "/jupyter/" if "baseUrl" in chart.INSTALLS[name].values.get("hub", {}) else "/"


# Traffic, by the policies of chart and manifests together.


class Site:
    """The ends of every connection, and the policies of the namespace of each."""

    def __init__(self, name, server):
        install, objects = chart.INSTALLS[name], chart.rendered(name)
        self.made_by_the_hub = install.servers
        cloud = install.values.get("singleuser", {}).get("cloudMetadata", {})
        self.metadata = cloud.get("ip", "169.254.169.254")
        ours = [each for _, each in shipped.render(install.ours)]
        policies = [each for each in (*ours, *objects) if each["kind"] == "NetworkPolicy"]
        self.policies = {
            space: [each for each in policies if each["metadata"]["namespace"] == space]
            for space in (install.namespace, shipped.SYSTEM)
        }
        where = install.servers or install.namespace
        # What the hub copies into a user's namespace.
        self.policies.setdefault(
            where,
            [
                each
                for each in self.policies[install.namespace]
                if each["metadata"]["labels"].get(labels.COMPONENT) == labels.LEASE_COMPONENT
                and each["metadata"]["labels"].get(labels.NAME) == labels.APP
            ],
        )
        self.server = self._end(server, where)
        self.hub, self.proxy = (
            self._end(chart.one(objects, "Deployment", part)["spec"]["template"], install.namespace)
            for part in ("hub", "proxy")
        )
        (service,) = (
            each
            for each in ours
            if each["kind"] == "Deployment" and each["metadata"]["name"] == "gpulease"
        )
        self.service = self._end(service["spec"]["template"], shipped.SYSTEM)
        marks = {labels.NAME: labels.APP, labels.COMPONENT: labels.LEASE_COMPONENT}
        self.lease = End(where, marks, INSTANCE if install.servers else {}, POD)

    def _end(self, pod, namespace):
        ports = {
            port["name"]: port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports", [])
            if "name" in port
        }
        where = INSTANCE if namespace == self.made_by_the_hub else {}
        return End(namespace, pod["metadata"]["labels"], where, POD, ports)

    def flows(self, source, target, port):
        """Whether a connection is let out at its source and in at its target."""
        out = lets(self.policies[source.namespace], source, "Egress", target, (port, "TCP"))
        if not target.namespace:
            return out
        come_in = lets(self.policies[target.namespace], target, "Ingress", source, (port, "TCP"))
        return out and come_in


def what_must_flow_flows_and_nothing_else(site):
    for source, target, port in (
        (site.server, site.service, 9980),
        (site.proxy, site.service, 9980),
        (site.hub, site.service, 9980),
        (site.lease, site.service, 9980),
        (site.service, site.hub, 8081),
        (site.server, site.hub, 8081),
        (site.proxy, site.server, 8888),
        (site.server, site.lease, 8890),
        (site.server, site.lease, 8990),
    ):
        assert site.flows(source, target, port), (source.labels, target.labels, port)
    for source, target, port in (
        (site.server, End(address=site.metadata), 80),
        (site.server, End(address="10.96.0.1"), 443),
        (site.server, site.service, 8892),
        (site.server, site.lease, 22),
        (site.lease, site.hub, 8081),
        (site.lease, site.server, 8888),
        (site.lease, site.lease, 8890),
        (site.proxy, site.lease, 8890),
    ):
        assert not site.flows(source, target, port), (source.labels, target.labels, port)


@every_install
async def test_a_hub_of_it_starts_servers_that_may_lease(name, configured, make_spawner):
    """With the chart's privileged init container, which is allowed as it is and no wider."""
    c = configured(name)
    hub = JupyterHub(config=c)
    (service,) = (each for each in hub.services if each["name"] == "gpulease")
    assert service["url"] == "http://gpulease.gpulease-system:9980"
    assert hub.spawner_class.__name__ == "GPULeaseSpawner"
    assert hub.base_url == base_path(name)

    pod = await start(make_spawner(c))
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    path = f"{base_path(name)}services/gpulease/"
    if chart.INSTALLS[name].servers:
        # A short name is unknown from there.
        assert c.JupyterHub.hub_connect_url.endswith(f"hub.{chart.INSTALLS[name].namespace}:8081")
    assert env["GPULEASE_SERVICE_URL"] == f"http://gpulease.gpulease-system:9980{path}"
    blockers = [each for each in pod["spec"].get("initContainers", []) if is_blocker(each)]
    assert len(blockers) == (name != "no metadata block")
    # By the list alone too, but for what the site has to tell the admission policy.
    assert {each.what for each in guard.inspect(pod)} == set(chart.INSTALLS[name].allowed)
    what_must_flow_flows_and_nothing_else(Site(name, pod))


@pytest.mark.parametrize("chosen", chart.COURSE_CHOICES, ids=str)
async def test_every_profile_of_a_course_passes(configured, make_spawner, chosen):
    """With what runs before and beside the notebook."""
    pod = await start(make_spawner(configured("a course")), **chosen)
    names = [each["name"] for each in pod["spec"]["initContainers"]]
    assert names == ["course-files", "block-cloud-metadata"]
    notebook, beside = pod["spec"]["containers"]
    assert beside["name"] == "data"
    assert notebook["image"] == chart.COURSE_IMAGE
    bound = {"large": 8, "small": 2}[chosen.get("size", "small")]
    assert notebook["resources"]["limits"]["memory"] == bound * 2**30
    assert guard.inspect(pod) == ()


def test_the_hubs_own_culler_stays_beside_gpulease(configured):
    """`setup_gpulease` adds a service and roles to those of the chart."""
    c = configured("a course")
    culler, ours = c.JupyterHub.services
    assert culler["name"] == "jupyterhub-idle-culler"
    assert {"--timeout=7200", "--max-age=172800"} <= set(culler["command"])
    assert ours["name"] == "gpulease"
    roles = {each["name"]: each for each in c.JupyterHub.load_roles}
    assert roles["jupyterhub-idle-culler"]["services"] == ["jupyterhub-idle-culler"]


def test_what_the_chart_pulls_and_holds_ahead_stays_off_gpus():
    """Pullers and placeholders go where servers go; ours pulls on nodes with GPUs."""
    objects = chart.rendered("a course")
    ahead = [each for each in objects if each["kind"] in {"DaemonSet", "StatefulSet"}]
    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in ahead} == {
        *("hook-image-puller", "continuous-image-puller", "user-placeholder")
    }
    (ours,) = (each for each in shipped.load("leases/puller.yaml") if each["kind"] == "DaemonSet")
    for each in ahead:
        template = each["spec"]["template"]
        for taint in ("", GPU_NODE[1]):
            assert not may_run(template, GPU_NODE[0], taint), each["metadata"]["name"]
        assert may_run(template, *USER_NODE), each["metadata"]["name"]
        # Nothing of them is a GPU; what is not on the list is asked of servers alone.
        assert {found.rule for found in guard.inspect(template)} <= {"not_listed"}
    pulled = {
        container["image"]
        for each in ahead
        if each["kind"] == "DaemonSet"
        for container in each["spec"]["template"]["spec"]["initContainers"]
    }
    assert {chart.COURSE_IMAGE, "quay.io/jupyter/base-notebook:1"} <= pulled
    assert may_run(ours["spec"]["template"], *GPU_NODE)
    assert not may_run(ours["spec"]["template"], *USER_NODE)


def may_run(template, node_labels, taint):
    """Whether a pod of this template may be placed on a node with these labels and this taint."""
    spec = template["spec"]
    chosen = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = chosen.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    wanted = [each["matchExpressions"] for each in terms.get("nodeSelectorTerms", [])]
    return (
        spec.get("nodeSelector", {}).items() <= node_labels.items()
        and (not wanted or any_holds(wanted, node_labels))
        and (not taint or any(each.get("key") == taint for each in spec["tolerations"]))
    )


async def test_a_gpu_is_refused_all_the_same(configured, make_spawner):
    c = configured("fullname")
    c.KubeSpawner.extra_resource_limits = {"nvidia.com/gpu": "1"}
    with pytest.raises(Exception, match=r"nvidia\.com/gpu"):
        await start(make_spawner(c))
