"""The shipped manifests: complete, by one name, and taken by a real API server."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from gpulease import labels
from gpulease.hub import gpu_names, guard
from gpulease.hub.user_namespaces import SELECTOR
from gpulease.providers.kubernetes import uninstall
from testcluster.api import plural
from tests.helm_values import shipped
from tools.admission_policy import POLICY, rendered


def variables(policy: str) -> dict[str, str]:
    (found,) = [each for each in shipped.load() if each["metadata"]["name"] == policy][:1]
    return {each["name"]: each["expression"] for each in found["spec"]["variables"]}


def test_every_file_is_named_by_a_kustomization():
    named = {path.resolve() for directory in roots() for path in shipped.files(directory)}
    there = {path.resolve() for path in shipped.ROOT.rglob("*.yaml")}
    own = {path for path in there if path.name == "kustomization.yaml"}
    values = {path for path in there if path.name.startswith("values")}
    assert there - own - values == named


def roots() -> list[Path]:
    return [path.parent for path in shipped.ROOT.rglob("kustomization.yaml")]


def test_every_object_says_that_it_is_ours():
    for each in shipped.load():
        if each["kind"] == "Namespace" and each["metadata"]["name"] == shipped.SERVERS:
            continue  # the site's; we only label it
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "gpulease"


def test_the_guard_and_the_policy_know_gpus_by_the_same_patterns():
    found = variables("gpulease-no-gpu")
    for name, pattern in {
        "resource": gpu_names.RESOURCE,
        "nodeKey": gpu_names.NODE_KEY,
        "nodeValue": gpu_names.NODE_VALUE,
        "noGpu": gpu_names.NO_GPU,
        "variable": gpu_names.VARIABLE,
        "note": gpu_names.NOTE,
        "runtime": gpu_names.RUNTIME,
        "scheduler": gpu_names.SCHEDULER,
        "hostPath": gpu_names.HOST_PATH,
        "capability": gpu_names.CAPABILITY,
    }.items():
        assert found[name] == f"r'{pattern}'", name
    assert set(ast.literal_eval(found["choosing"])) == gpu_names.CHOOSING
    assert set(ast.literal_eval(found["nothing"])) == gpu_names.VOID


def test_the_policy_says_what_the_guards_tables_say():
    """Else run `python tools/admission_policy.py`."""
    text = POLICY.read_text(encoding="utf-8")
    assert rendered(text) == text


def test_the_policy_has_a_rule_for_each_of_the_guards():
    (policy,) = [
        each
        for each in shipped.load("admission/gpu-asks.yaml")
        if each["kind"] == "ValidatingAdmissionPolicy"
    ]
    rules = {each["message"].split(":")[0] for each in policy["spec"]["validations"]}
    # A pod itself cannot ask for admin access; the label that allows it is a sharing note.
    assert rules == set(guard.RULES) - {"admin_access"}


def test_the_hubs_namespace_is_under_the_policy():
    (binding,) = [
        each
        for each in shipped.load("admission/gpu-asks.yaml")
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    selector = binding["spec"]["matchResources"]["namespaceSelector"]
    assert selector == {"matchExpressions": [{"key": "gpulease/instance", "operator": "Exists"}]}
    found = {each["metadata"]["name"]: each for each in shipped.load("namespaces.yaml")}
    assert "gpulease/instance" in found[shipped.SERVERS]["metadata"]["labels"]
    # The agents there look at every device.
    assert "gpulease/instance" not in found[shipped.SYSTEM]["metadata"]["labels"]


def test_no_account_may_read_secrets_or_run_commands_in_pods():
    everywhere = {
        each["roleRef"]["name"] for each in shipped.load() if each["kind"] == "ClusterRoleBinding"
    }
    for each in shipped.load():
        for rule in each.get("rules", []):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            assert not {"secrets", "pods/exec", "pods/attach", "serviceaccounts/token"} & set(
                rule["resources"]
            )
            if each["kind"] == "ClusterRole" and each["metadata"]["name"] in everywhere:
                reads = {"get", "list", "watch"}
                assert set(rule["verbs"]) <= reads or rule["resources"] == ["tokenreviews"]


def test_what_leases_need_in_a_namespace_is_marked_to_be_copied():
    """The hub copies by these labels into each user's namespace, and the order is its own."""
    labels = dict(pair.split("=") for pair in SELECTOR.split(","))
    marked = [
        (each["kind"], each["metadata"]["name"])
        for each in shipped.load()
        if labels.items() <= each["metadata"].get("labels", {}).items()
        and each["metadata"].get("namespace") == shipped.SERVERS
    ]
    assert sorted(marked) == [
        ("NetworkPolicy", "gpulease-lease"),
        ("NetworkPolicy", "gpulease-lease-internet"),
        ("RoleBinding", "gpulease-servers"),
        ("ServiceAccount", "gpulease-lease"),
    ]


def test_the_hub_may_give_the_one_role_and_no_other():
    found = shipped.load("user-namespaces/hub.yaml")
    (bind,) = [
        rule
        for each in found
        for rule in each.get("rules", [])
        if "bind" in rule["verbs"] or "escalate" in rule["verbs"]
    ]
    assert bind["resourceNames"] == ["gpulease-servers"]
    for each in found:
        for rule in each.get("rules", []):
            assert "secrets" not in rule["resources"]
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_uninstall_knows_every_kind_that_we_ship_and_spares_the_hubs_namespace():
    known = {each.plural for each in uninstall.KINDS} | {"namespaces"}
    everything = [
        each
        for path in shipped.ROOT.rglob("*.yaml")
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if each and "metadata" in each
    ]
    ours = [
        each for each in everything if each["metadata"]["labels"].get(labels.NAME) == labels.APP
    ]
    assert {plural(each["kind"]) for each in ours} <= known
    spared = {(each["kind"], each["metadata"]["name"]) for each in everything if each not in ours}
    assert spared == {("Namespace", shipped.SERVERS)}


@pytest.mark.cluster
def test_the_api_server_takes_every_object(installed):
    """``installed`` created them all; the deployment's pods are made by its controller."""
    from testcluster.api import path_of

    for document in shipped.load():
        assert installed.api.find(path_of(installed.object(document)))


def test_the_first_lease_is_under_ten_commands_away():
    text = (shipped.ROOT.parent / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    install = text.split("\n## Install\n")[1].split("\n## ")[0]
    commands = re.findall(r"^    (?!```)(\S.*)$", install, re.MULTILINE)
    assert 5 < len(commands) < 10
    assert [each for each in commands if "apply -k helm-values" in each]
    # Every name that the commands give is one that manifests and values ask for.
    for namespace, name, key in (
        (shipped.SYSTEM, "gpulease-service", "database-url"),
        (shipped.SYSTEM, "gpulease-service", "hub-token"),
        (shipped.SERVERS, "gpulease-hub", "hub-token"),
    ):
        (made,) = [each for each in commands if f"secret generic {name}" in each]
        assert f"--namespace {namespace} " in made
        assert f"{key}=" in made
        asked = (shipped.ROOT / "values-z2jh.yaml").read_text(encoding="utf-8") + (
            shipped.ROOT / "service" / "service.yaml"
        ).read_text(encoding="utf-8")
        assert f"name: {name}\n" in asked
        assert f"key: {key}\n" in asked
