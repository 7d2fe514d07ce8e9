"""The chart's values: each with its sentence, refused where they cannot be right, and what they do.

The values that it prints for the hub are run on real traitlets.
"""

import json
import re
import sys
import tomllib
import types

import jsonschema
import pytest
import yaml
from jupyterhub.app import JupyterHub
from traitlets.config import Config

import gpulease
from gpulease.hub import guard_list, setup_gpulease
from testcluster import own_chart
from tests.another_version import NEXT_MINOR, NEXT_PATCH
from tests.helm_values import shipped
from tests.hub.conftest import start
from tools import chart_values

SCHEMA = json.loads(chart_values.SCHEMA.read_text(encoding="utf-8"))
VALID = jsonschema.Draft202012Validator(SCHEMA)
POLICY, LEASE_PODS = "ValidatingAdmissionPolicy", "admission/lease-pods.yaml"
LAB = {"furtherHubs": {"phys-lab": {"namespace": "physics", "baseUrl": "/p"}}}


def described(schema):
    """Yield every value of a schema with its sentence."""
    for name, value in schema.get("properties", {}).items():
        yield name, value.get("description", "")
        yield from described(value)
        yield from described(value.get("additionalProperties") or {})


def test_each_value_has_its_sentence_and_its_default_in_one_place():
    """Else run `python tools/chart_values.py`."""
    text = chart_values.VALUES.read_text(encoding="utf-8")
    assert chart_values.rendered(SCHEMA) == text
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    VALID.validate(yaml.safe_load(text))
    for name, sentence in described(SCHEMA):
        assert sentence.endswith((".", "then.")), name
        assert len(sentence.split()) <= 35, name


@pytest.mark.parametrize(
    "given",
    [
        {"hub": {"namespaces": ["jupyterhub"]}},
        {"hub": {"namespace": "Jupyter Hub"}},
        {"hub": {"baseUrl": "jupyter"}},
        {"hub": {"baseUrl": "https://hub.example.org/"}},
        {"hub": {"url": "http://hub.example.org"}},
        {"hub": {"url": "https://hub.example.org/jupyter"}},
        {"secrets": {"token": "short"}},
        {"leases": {"images": "quay.io/x"}},
        {"leases": {"claims": ["it's"]}},
        {"leases": {"internetExcept": ["the-api-server"]}},
        {"servers": {"allow": [""]}},
        {"furtherHubs": {"Lab": {}}},
        {"furtherHubs": {"lab": {"namespaces": []}}},
        {"userNamespaces": {"template": "users"}},
        {"service": {"database": {"url": "mysql://x"}}},
        {"image": {"registry": "registry.example.edu/lab/"}},
        {"agents": {}},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_what_cannot_be_right(given):
    with pytest.raises(jsonschema.ValidationError):
        VALID.validate(given)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hub": {"namespace": "Jupyter Hub"}}, "does not match pattern"),
        ({"hub": {"namespace": "gpulease-system"}}, "in a namespace of its own"),
        ({"furtherHubs": {"jupyterhub": {}}}, "Two hubs are in the namespace jupyterhub"),
    ],
)
def test_helm_refuses_it_in_words(values, words):
    shipped.needs_helm()
    with pytest.raises(RuntimeError, match=words):
        list(own_chart.render(values))


WORDS = ["claim-*", "a.b", "x+(y)", "homes", "r$", "[z]", "back\\slash", "{0}|w"]


def test_words_of_lists_are_words_and_a_star_is_any_text():
    policy = shipped.one(POLICY, LEASE_PODS, values={"leases": {"claims": WORDS}})
    (found,) = [each for each in policy["spec"]["variables"] if each["name"] == "claims"]
    ours = re.compile(found["expression"].removeprefix("r'").removesuffix("'"))
    theirs = re.compile(guard_list.expression(WORDS))
    for word in [*WORDS, "claim-", "claim-ada", "aXb", "xx(y)", "home", "homes2", "r", "z", "w"]:
        assert bool(ours.fullmatch(word)) == bool(theirs.fullmatch(word)), word


@pytest.mark.parametrize(
    ("image", "runs", "does_not"),
    [
        ("", "ghcr.io/example/gpulease-companion:old", "ghcr.io/example/gpulease-service:0.1.0"),
        ("reg.example:5000/lab/nb:1", "reg.example:5000/lab/nb:2", "reg.example:5000/lab/nb2:1"),
        ("lab/nb@sha256:ab", "lab/nb@sha256:cd", "elsewhere/lab/nb:1"),
        ("own/nb:2", "also/this:1", "also/this:2"),
    ],
)
def test_lease_pods_run_the_servers_image_of_any_tag_and_what_is_named(image, runs, does_not):
    """A server that runs has the image of before the upgrade, and so has its lease pod."""
    values = {"servers": {"image": image}, "leases": {"images": ["also/this:1", "more/*"]}}
    policy = shipped.one(POLICY, LEASE_PODS, values=values)
    (found,) = [each for each in policy["spec"]["variables"] if each["name"] == "images"]
    pattern = re.compile(found["expression"].removeprefix("r'").removesuffix("'"))
    assert pattern.fullmatch(runs)
    assert not pattern.fullmatch(does_not)
    puller = shipped.one("DaemonSet", "leases/puller.yaml", values=values)
    containers = puller["spec"]["template"]["spec"]["containers"]
    named = image or "ghcr.io/example/gpulease-companion:0.1.0"
    assert [each["image"] for each in containers] == [named, "also/this:1"]
    chosen = yaml.safe_load(own_chart.hub_values(values))["singleuser"]["image"]
    assert f"{chosen['name']}:{chosen['tag']}" == named


def secrets(values=None):
    return {
        each["metadata"]["namespace"]: each["stringData"]
        for each in shipped.load("secrets.yaml", values=values)
    }


def test_hub_and_service_share_a_token_of_their_own():
    found = secrets(LAB)
    ours = found.pop("gpulease-system")
    assert ours["hub-token"] == found["jupyterhub"]["hub-token"]
    assert ours["hub-token-phys-lab"] == found["physics"]["hub-token"]
    assert ours["hub-token"] != ours["hub-token-phys-lab"]
    assert min(len(found[each]["hub-token"]) for each in found) >= 32
    given = "g" * 40
    assert secrets({"secrets": {"token": given}})["jupyterhub"]["hub-token"] == given
    assert secrets({"secrets": {"create": False}}) == {}


def test_chart_and_package_have_one_version():
    chart = yaml.safe_load((shipped.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((shipped.CHART.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == gpulease.__version__
    assert project["project"]["version"] == gpulease.__version__


@pytest.mark.parametrize("tag", ["", NEXT_PATCH, f"v{NEXT_PATCH}", "2026-11", "main"])
def test_images_of_the_charts_minor_version_are_taken(tag):
    pod = shipped.one("Deployment", values={"image": {"tag": tag}})["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    wanted = f"ghcr.io/example/gpulease-service:{tag or gpulease.__version__}"
    assert container["image"] == wanted


@pytest.mark.parametrize("tag", [NEXT_MINOR, f"v{NEXT_MINOR}-rc1", "0.0.9"])
def test_images_of_another_version_are_refused(tag):
    with pytest.raises(RuntimeError) as refused:
        shipped.load(values={"image": {"tag": tag}})
    assert f"image.tag is {tag}, and this chart is of gpulease" in str(refused.value)


def values(given=None) -> dict:
    shipped.needs_helm()
    return yaml.safe_load(own_chart.hub_values(given))


@pytest.fixture
def chart(monkeypatch):
    """Run the values as the chart's jupyterhub_config.py does: `config`, then each snippet."""
    given = values({"servers": {"allow": ["node pool=u"]}})
    # Of the hub's chart and of the site.
    tools = {"image": {"name": "quay.io/jupyterhub/k8s-network-tools", "tag": "4.4.0"}}
    given["singleuser"]["networkTools"] = tools
    given["custom"] = {"gpulease": {"instructors": {"cs101": ["ines"]}, "admins": ["ada"]}}

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
    from gpulease.service.settings.options import KubernetesSettings

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


@pytest.mark.parametrize(
    ("given", "namespaces", "hubs"),
    [
        ({}, ["jupyterhub"], ()),
        (shipped.FEATURES["user-namespaces"], ["jupyter-*"], ()),
        (LAB, ["jupyterhub"], ("/p/services/gpulease-phys-lab/",)),
    ],
    ids=["default", "user namespaces", "further hub"],
)
def test_the_settings_of_the_service_are_settings(given, namespaces, hubs, monkeypatch, tmp_path):
    """The configuration file loads, and the first policy is one."""
    from traitlets.config.loader import PyFileConfigLoader

    from gpulease.policy import document
    from gpulease.service.settings.application import GPULeaseService
    from gpulease.service.settings.options import KubernetesSettings

    more = {"service": {"extraConfig": "c.GPULeaseService.trusted_servers = True\n"}}
    (found,) = shipped.load("service/settings.yaml", values={**given, **more})
    monkeypatch.setenv("DATABASE_URL", "sqlite:////var/lib/gpulease/gpulease.sqlite")
    monkeypatch.setenv("GPULEASE_TOKEN_PHYS_LAB", "t" * 40)
    file = tmp_path / "gpulease_config.py"
    file.write_text(found["data"]["gpulease_config.py"])
    config = PyFileConfigLoader(str(file)).load_config()
    for section, kind in (
        ("GPULeaseService", GPULeaseService),
        ("KubernetesSettings", KubernetesSettings),
    ):
        assert set(config[section]) <= set(kind.class_trait_names(config=True)), section
    service = GPULeaseService(config=config)
    options = service.options()
    assert options.port == 9980
    assert service.trusted_servers
    settings = KubernetesSettings(config=config)
    assert settings.pod_settings().priority_class == "gpulease-lease"
    assert settings.namespaces == namespaces
    assert tuple(each.prefix for each in options.hubs) == hubs
    assert document.check(found["data"]["policy.yaml"]) == []
