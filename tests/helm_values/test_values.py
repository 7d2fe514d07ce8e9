"""The values for the chart: as our schema says, and their snippets run on real traitlets."""

import json
import sys
import types

import jsonschema
import pytest
import yaml
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from gpulease.hub import setup_gpulease
from tests.helm_values import shipped
from tests.hub.conftest import start

VALUES = shipped.ROOT / "values-z2jh.yaml"
SCHEMA = json.loads((shipped.ROOT / "values.schema.json").read_text(encoding="utf-8"))


def values() -> dict:
    return yaml.safe_load(VALUES.read_text(encoding="utf-8"))


def test_the_values_are_as_the_schema_says():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(values(), SCHEMA)
    changed = values()
    changed["singleuser"]["cloudMetadata"] = {"blockWithIptables": False, "ip": "169.254.169.254"}
    jsonschema.validate(changed, SCHEMA)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("hub", "extraConfig", "zz-gpulease"), ""),
        (("hub", "config", "gpuleaseSpawner"), {}),
        (("hub", "extraEnv", "GPULEASE_SERVICE_TOKEN"), "a token in clear"),
        (("hub", "services"), {}),
        (("singleuser", "networkPolicy", "egress"), [{"to": [], "ports": []}]),
        (("custom", "gpulease", "admins"), "ada"),
        (("singleuser", "cloudMetadata"), {"block": True}),
        (("singleuser", "cloudMetadata"), {"ip": "$(curl x)"}),
    ],
)
def test_the_schema_refuses_what_cannot_be_right(where, value):
    changed = values()
    at = changed
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, SCHEMA)


@pytest.fixture
def chart(monkeypatch):
    """Run the values as the chart's jupyterhub_config.py does: `config`, then each snippet."""
    given = values()
    # Of the chart's own values.
    tools = {"image": {"name": "quay.io/jupyterhub/k8s-network-tools", "tag": "4.4.0"}}
    given["singleuser"]["networkTools"] = tools
    given["custom"]["gpulease"] = {"instructors": {"cs101": ["ines"]}, "admins": ["ada"]}

    def look_up(key, fallback=None):
        found = given
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                return fallback
            found = found[part]
        return found

    module = types.ModuleType("z2jh")
    module.get_config = look_up
    monkeypatch.setitem(sys.modules, "z2jh", module)
    monkeypatch.setenv("GPULEASE_SERVICE_TOKEN", "for this test only" * 2)
    c = Config()
    # What the chart itself has set by then.
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    c.JupyterHub.base_url = "/"
    c.KubeSpawner.image = "quay.io/jupyter/base-notebook"
    affinity = given["singleuser"]["extraNodeAffinity"]["required"]
    c.KubeSpawner.node_affinity_required = affinity
    for name, settings in given["hub"]["config"].items():
        c[name].update(settings)
    for key, snippet in sorted(given["hub"]["extraConfig"].items()):
        exec(compile(snippet, key, "exec"), {"c": c})
    return c


def test_the_snippets_give_a_hub_with_gpulease(chart):
    hub = JupyterHub(config=chart)
    (service,) = hub.services
    assert service["url"] == "http://gpulease.gpulease-system:9980"
    assert hub.spawner_class.__name__ == "GPULeaseSpawner"
    names = {role["name"] for role in hub.load_roles}
    assert {"gpulease-service", "gpulease-instructor-cs101", "gpulease-admin"} <= names


async def test_a_server_by_these_values_passes_the_guard(chart, make_spawner):
    pod = await start(make_spawner(chart))
    assert pod["metadata"]["labels"]["gpulease/instance"] == "gpulease"
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert env["GPULEASE_SERVICE_URL"] == "http://gpulease.gpulease-system:9980/services/gpulease/"


def test_a_site_with_a_service_of_that_name_is_told(chart):
    from gpulease.errors import GPULeaseError

    with pytest.raises(GPULeaseError, match="gpulease"):
        setup_gpulease(chart, service_url="http://x:1", service_token="s" * 32)


def test_ports_and_names_agree_everywhere():
    """Values, network policies and the service's settings speak of one port range and one port."""
    from gpulease.providers.kubernetes.manifests.manifest import SERVICE_ACCOUNT
    from gpulease.service.settings.kubernetes import KubernetesSettings

    lowest, highest = KubernetesSettings().ports.split("-")
    (policy,) = [
        each
        for each in shipped.load("leases/network.yaml")
        if each["metadata"]["name"] == "gpulease-lease"
    ]
    (incoming,) = policy["spec"]["ingress"]
    _service, server_egress = values()["singleuser"]["networkPolicy"]["egress"]
    for port in (*incoming["ports"], *server_egress["ports"]):
        assert (str(port["port"]), str(port["endPort"])) == (lowest, highest)
    accounts = [each["metadata"]["name"] for each in shipped.load("leases/account.yaml")]
    assert SERVICE_ACCOUNT in accounts


def test_the_settings_of_the_service_are_settings(monkeypatch, tmp_path):
    """The shipped configuration file loads, and the first policy is one."""
    from traitlets.config.loader import PyFileConfigLoader

    from gpulease.policy import document
    from gpulease.service.settings.application import GPULeaseService
    from gpulease.service.settings.kubernetes import KubernetesSettings

    (found,) = shipped.load("service/settings.yaml")
    monkeypatch.setenv("DATABASE_URL", "sqlite:////var/lib/gpulease/gpulease.sqlite")
    file = tmp_path / "gpulease_config.py"
    file.write_text(found["data"]["gpulease_config.py"])
    config = PyFileConfigLoader(str(file)).load_config()
    for section, kind in (
        ("GPULeaseService", GPULeaseService),
        ("KubernetesSettings", KubernetesSettings),
    ):
        assert set(config[section]) <= set(kind.class_trait_names(config=True)), section
    options = GPULeaseService(config=config).options()
    assert options.port == 9980
    pods = KubernetesSettings(config=config).pod_settings()
    assert pods.priority_class == "gpulease-lease"
    assert document.check(found["data"]["policy.yaml"]) == []
