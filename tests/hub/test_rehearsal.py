"""What the guard says to every profile beforehand, and that its printed lines are enough."""

import ast
import json
import re

import pytest
import yaml
from traitlets.config import Config

pytest.importorskip("kubespawner")
from gpulease.cli import main
from gpulease.errors import GPULeaseError
from gpulease.hub import guard_list, rehearsal, setup_gpulease
from tests.hub.conftest import start

TOKEN = "for this test only" * 2
PROFILES = [
    {"display_name": "Plain", "slug": "plain", "default": True},
    {
        "display_name": "Big",
        "slug": "big",
        "kubespawner_override": {
            "node_selector": {"pool": "big"},
            "extra_resource_limits": {"example.com/fuse": "1"},
        },
        "profile_options": {
            "data": {
                "display_name": "Data",
                "choices": {
                    "none": {"display_name": "None", "default": True, "kubespawner_override": {}},
                    "local": {
                        "display_name": "Local",
                        "kubespawner_override": {
                            "volumes": [{"name": "d", "hostPath": {"path": "/srv/data"}}]
                        },
                    },
                },
            }
        },
    },
    {
        "display_name": "GPU",
        "slug": "gpu",
        "kubespawner_override": {"extra_resource_limits": {"nvidia.com/gpu": "1"}},
    },
]


def hub(**settings):
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    c.KubeSpawner.image = "quay.example/notebook"
    for name, value in settings.items():
        c.KubeSpawner[name] = value
    setup_gpulease(c, service_url="http://x:1", service_token=TOKEN)
    return c


async def rehearsed(c):
    return {each.choice.words: each async for each in rehearsal.rehearse(c)}


@pytest.fixture
def site():
    c = hub(profile_list=PROFILES, tolerations=[{"key": "students", "operator": "Exists"}])
    c.KubeSpawner.service_account = "student-{username}"
    c.Spawner.group_overrides = {
        "staff": {"groups": ["staff"], "spawner_override": {"priority_class_name": "staff"}}
    }
    return c


async def test_every_profile_option_and_group_is_looked_at(no_cluster, site):
    found = await rehearsed(site)
    assert {words: each.missing for words, each in found.items()} == {
        "profile plain": (),
        "profile big": ("resource example.com/fuse", "node pool=big"),
        "profile big, data none": ("resource example.com/fuse", "node pool=big"),
        "profile big, data local": (
            "resource example.com/fuse",
            "node pool=big",
            "hostPath /srv/data",
        ),
        "profile gpu": (),
        "group override staff": ("priorityClassName staff",),
    }
    (gpu,) = found["profile gpu"].refused
    assert gpu.rule == "device_resource"
    # What is configured for all servers the hub knows, and the policy does not; users are many.
    assert found["profile plain"].policy == ("serviceAccountName student-*", "toleration students")


async def test_with_the_printed_lines_everything_but_the_gpu_starts(no_cluster, site, make_spawner):
    report = "\n".join(rehearsal.told((await rehearsed(site)).values()))
    printed = ast.literal_eval(re.search(r"gpulease_allow \+= (\[.*?\n\])", report, re.DOTALL)[1])
    site.GPULeaseSpawner.gpulease_allow = printed
    again = await rehearsed(site)
    assert not any(each.missing for each in again.values())
    pod = await start(make_spawner(site), profile="big", data="local")
    assert pod["spec"]["volumes"][0]["hostPath"]["path"] == "/srv/data"
    # What the policy lacks stands among the chart's values.
    lines = re.search(r"^servers:\n  allow:\n(?:    - .*\n)+", report, re.MULTILINE)[0]
    allowed = tuple(yaml.safe_load(lines)["servers"]["allow"])
    for each in again.values():
        assert all(guard_list.allows(allowed, line) for line in each.policy if not each.refused)
    assert guard_list.allows(allowed, "serviceAccountName student-ada")


#: What KubeSpawner's own documentation and tests set, one thing a profile; none of it is a GPU.
EVERY_KIND = {
    "volumes": [
        {"name": "home", "persistentVolumeClaim": {"claimName": "claim-{username}"}},
        {"name": "data", "hostPath": {"path": "/mnt/data", "type": "Directory"}},
        {"name": "share", "flexVolume": {"driver": "kubernetes.io/cifs"}},
        {"name": "more", "csi": {"driver": "secrets-store.csi.k8s.io"}},
        {"name": "net", "nfs": {"server": "files", "path": "/"}},
    ],
    "extra_resource_limits": {"vendor.example/fuse": "1"},
    "container_security_context": {"capabilities": {"add": ["NET_ADMIN"]}, "runAsUser": 1000},
    "pod_security_context": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
    "init_containers": [
        {
            "name": "clone",
            "image": "quay.example/git",
            "command": ["git", "clone", "{username}"],
            "securityContext": {"capabilities": {"add": ["SYS_TIME"]}},
        }
    ],
    "extra_containers": [{"name": "crontab", "image": "busybox", "volumeMounts": []}],
    "extra_container_config": {"envFrom": [{"configMapRef": {"name": "course"}}], "tty": True},
    "extra_pod_config": {"dnsPolicy": "Default", "priorityClassName": "x", "hostAliases": []},
    "lifecycle_hooks": {"postStart": {"exec": {"command": ["true"]}}},
    "node_selector": {"disktype": "ssd"},
    "tolerations": [{"key": "key", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    "node_affinity_required": [
        {"matchExpressions": [{"key": "role", "operator": "In", "values": ["user", "any"]}]}
    ],
    "node_affinity_preferred": [
        {
            "weight": 10,
            "preference": {
                "matchExpressions": [{"key": "attrib", "operator": "Gt", "values": ["2"]}]
            },
        }
    ],
    "pod_affinity_required": [
        {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "rack"}
    ],
    "pod_anti_affinity_required": [
        {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "rack"}
    ],
    "scheduler_name": "my-scheduler",
    "priority_class_name": "course",
    "service_account": "reader-{username}",
    "uid": 1000,
    "gid": 100,
    "fs_gid": 100,
    "supplemental_gids": [200],
    "image_pull_secrets": ["registry"],
    "extra_labels": {"course": "cs101"},
    "extra_annotations": {"prometheus.io/scrape": "true"},
    "working_dir": "/home/{username}",
    "allow_privilege_escalation": True,
}


async def test_all_that_kubespawner_can_set_starts_with_the_printed_lines(no_cluster, make_spawner):
    profiles = [
        {"display_name": name, "slug": name, "kubespawner_override": {name: value}}
        for name, value in EVERY_KIND.items()
    ]
    c = hub(profile_list=profiles)
    found = (await rehearsed(c)).values()
    assert not any(each.error or each.refused for each in found)
    lines = sorted({line for each in found for line in each.missing})
    assert lines == [
        "capability NET_ADMIN",
        "capability SYS_TIME in clone",
        "flexVolume kubernetes.io/cifs",
        "hostPath /mnt/data",
        "node attrib>2",
        "node disktype=ssd",
        "node role=any",
        "node role=user",
        "pod app=cache",
        "priorityClassName course",
        "priorityClassName x",
        "resource vendor.example/fuse",
        "schedulerName my-scheduler",
        "serviceAccountName reader-*",
        "toleration key=v",
    ]
    c.GPULeaseSpawner.gpulease_allow = lines
    for name in EVERY_KIND:
        await start(make_spawner(c), profile=name)


async def test_a_sites_own_function_that_fails_is_named(no_cluster):
    def fails(spawner, pod=None):
        raise RuntimeError("no such course")

    found = await rehearsed(hub(profile_list=fails))
    assert "no such course" in found["profiles"].error
    found = await rehearsed(hub(modify_pod_hook=fails))
    assert "no such course" in found["no profile"].error


async def test_a_hook_is_run_and_nothing_is_sent(no_cluster):
    def hook(spawner, pod):
        pod.spec.runtime_class_name = "kata"
        return pod

    found = await rehearsed(hub(modify_pod_hook=hook))
    assert found["no profile"].missing == ("runtimeClassName kata",)


async def test_a_hub_without_the_guard_is_told(no_cluster):
    with pytest.raises(GPULeaseError, match="which has no guard"):
        await rehearsed(Config({"JupyterHub": {"spawner_class": "kubespawner.KubeSpawner"}}))


CONFIGURATION = """
from gpulease.hub import setup_gpulease

print("loading")
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.image = "quay.example/notebook"
c.KubeSpawner.profile_list = {profiles!r}
setup_gpulease(c, service_url="http://x:1", service_token="x" * 32)
"""


def test_the_command_prints_the_lines(no_cluster, tmp_path, capsys):
    file = tmp_path / "jupyterhub_config.py"
    file.write_text(CONFIGURATION.format(profiles=PROFILES))
    assert main(["doctor", "--hub", str(file)]) == 1
    out = capsys.readouterr().out
    assert "loading" not in out
    assert "ok       profile plain\n" in out
    assert "REFUSED  profile gpu: spec.containers[0].resources.limits.nvidia.com/gpu" in out
    assert "MISSING  profile big: resource example.com/fuse, node pool=big" in out
    assert "    'hostPath /srv/data',\n" in out
    assert main(["doctor", "--hub", str(file), "--json"]) == 1
    each = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert each[0]["choice"]["words"] == "profile plain"
    file.write_text(CONFIGURATION.format(profiles=PROFILES[:1]))
    assert main(["doctor", "--hub", str(file)]) == 0


def test_a_configuration_that_fails_is_told(tmp_path, capsys):
    file = tmp_path / "jupyterhub_config.py"
    file.write_text("1 / 0")
    assert main(["doctor", "--hub", str(file)]) != 0
    assert "division by zero" in capsys.readouterr().err
