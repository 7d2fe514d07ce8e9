"""The shipped manifests: complete, by one name, and taken by a real API server."""

import ast

import pytest

from gpulease.commands import uninstall
from gpulease.hub import gpu_names, guard
from gpulease.hub.user_namespaces import SELECTOR
from gpulease.protocol import labels
from testcluster.api import plural
from tests.helm_values import shipped
from tools.admission_policy import POLICY, rendered


def variables(policy: str) -> dict[str, str]:
    (found,) = [each for each in shipped.load() if each["metadata"]["name"] == policy][:1]
    return {each["name"]: each["expression"] for each in found["spec"]["variables"]}


def test_every_object_says_that_it_is_ours():
    for each in shipped.everything():
        assert each["metadata"]["labels"][labels.NAME] == labels.APP
        assert ("namespace" in each["metadata"]) == (each["kind"] not in shipped.GLOBAL)


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


def test_the_policy_covers_the_hubs_namespaces_and_those_that_they_make():
    values = {"hub": {"namespace": "teaching"}, "furtherHubs": {"lab2": {}}}
    selectors = [
        each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        for each in shipped.load("admission/gpu-asks.yaml", values=values)
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    # The agents, in the release's namespace, look at every device.
    assert selectors == [
        [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "In",
                "values": ["teaching", "lab2"],
            }
        ],
        [{"key": "gpulease/instance", "operator": "Exists"}],
    ]


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


def test_uninstall_knows_every_kind_that_we_ship():
    known = {each.plural for each in uninstall.KINDS}
    assert {plural(each["kind"]) for each in shipped.everything()} <= known


@pytest.mark.cluster
def test_the_api_server_takes_every_object(installed):
    """``installed`` created them all; the deployment's pods are made by its controller."""
    from testcluster.api import path_of

    for document in installed.load():
        assert installed.api.find(path_of(document))
