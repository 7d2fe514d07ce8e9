"""GPULeaseSpawner on the real KubeSpawner: what is sent, what is refused, what still works."""

import contextlib
import logging

import pytest
import tornado.web
from traitlets.config import Config

from gpulease.hub import GPULeaseSpawnerMixin, setup_gpulease
from gpulease.protocol import labels
from tests.hub.conftest import Groups, start

pytest.importorskip("kubespawner")
from kubespawner import KubeSpawner

from gpulease.hub import GPULeaseSpawner

GPU = {"nvidia.com/gpu": "1"}
PROFILES = [
    {"display_name": "CPU", "slug": "cpu", "default": True},
    {
        "display_name": "GPU",
        "slug": "gpu",
        "kubespawner_override": {
            "extra_resource_limits": GPU,
            "environment": {"COURSE": "deep"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "mem_limit": "8G",
        },
        "profile_options": {
            "image": {
                "display_name": "Image",
                "choices": {"big": {"display_name": "Big", "kubespawner_override": {"uid": 7}}},
            }
        },
    },
]


def notebook(pod):
    return next(each for each in pod["spec"]["containers"] if each["name"] == "notebook")


def environment(pod, container=None):
    return {each["name"]: each.get("value") for each in (container or notebook(pod))["env"]}


async def test_a_server_has_no_gpu_and_says_whose_it_is(make_spawner):
    spawner = make_spawner(
        name="lab-2", gpulease_instance="Uni Hub!", gpulease_service_url="http://x/services/y/"
    )
    pod = await start(spawner)
    assert environment(pod)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment(pod)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(pod)["GPULEASE_SERVICE_URL"] == "http://x/services/y/"
    assert pod["metadata"]["annotations"][labels.USER] == "stu"
    assert pod["metadata"]["annotations"][labels.SERVER] == "lab-2"
    assert pod["metadata"]["labels"][labels.INSTANCE] == labels.label_value("Uni Hub!")
    assert pod["metadata"]["name"].startswith("jupyter-stu--lab-2")


async def test_a_clean_pod_is_what_kubespawner_makes(make_spawner):
    """Beside our names and variables, nothing differs."""
    settings = {
        "extra_containers": [{"name": "sidecar", "image": "x", "env": [_void()]}],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-{username}"}}],
        "volume_mounts": [{"name": "home", "mountPath": "/home"}],
        "node_selector": {"hub.jupyter.org/node-purpose": "user"},
        "extra_pod_config": {"shareProcessNamespace": True},
        "uid": 1000,
        "fs_gid": 100,
        "cpu_guarantee": 0.5,
        "mem_limit": "2G",
        "lifecycle_hooks": {"postStart": {"exec": {"command": ["true"]}}},
    }
    ours = await start(make_spawner(**settings))
    plain = await start(make_spawner(spawner_class=KubeSpawner, **settings))
    for key in (labels.USER, labels.SERVER):
        del ours["metadata"]["annotations"][key]
    del ours["metadata"]["labels"][labels.INSTANCE]
    for pod in (ours, plain):
        del notebook(pod)["env"]
    assert ours == plain


def _void():
    return {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


WAYS = {
    "extra_resource_limits": GPU,
    "extra_resource_guarantees": {"amd.com/gpu": "1"},
    "extra_pod_config": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
    "extra_container_config": {"resources": {"limits": GPU}},
    "extra_containers": [{"name": "x", "image": "x", "resources": {"limits": GPU}}],
    "init_containers": [{"name": "x", "image": "x", "resources": {"limits": GPU}}],
    "node_selector": {"nvidia.com/gpu.present": "true"},
    "node_affinity_required": [
        {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "Exists"}]}
    ],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "scheduler_name": "kai-scheduler",
    "extra_annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"},
    "extra_labels": {"runai-gpu-group": "x"},
    "privileged": True,
    "volumes": [{"name": "dri", "hostPath": {"path": "/dev/dri"}}],
    "modify_pod_hook": lambda spawner, pod: _with_runtime_class(pod),
    "pod_affinity_required": [
        {
            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "nvidia-driver"}},
            "topologyKey": "kubernetes.io/hostname",
        }
    ],
}

#: Raw words of a site, in KubeSpawner's spelling and in Kubernetes': each must be found.
RAW = [
    ("extra_pod_config", {"runtimeClassName": "nvidia"}),
    ("extra_pod_config", {"runtime_class_name": "nvidia"}),
    ("extra_pod_config", {"nodeName": "gpu-1"}),
    ("extra_pod_config", {"node_name": "cpu-1"}),
    ("extra_pod_config", {"schedulerName": "hami-scheduler"}),
    ("extra_pod_config", {"resource_claims": [{"name": "g", "resource_claim_name": "g"}]}),
    ("extra_pod_config", {"initContainers": [{"name": "i", "resources": {"limits": GPU}}]}),
    ("extra_pod_config", {"init_containers": [{"name": "i", "resources": {"requests": GPU}}]}),
    ("extra_pod_config", {"ephemeralContainers": [{"name": "e", "resources": {"limits": GPU}}]}),
    ("extra_pod_config", {"tolerations": [{"operator": "Exists"}]}),
    ("extra_pod_config", {"tolerations": ({"key": "nvidia.com/gpu", "operator": "Exists"},)}),
    ("extra_pod_config", {"overhead": {"nvidia.com/gpu": 1}}),
    ("extra_pod_config", {"nodeSelector": {"accelerator": "l4"}}),
    ("extra_pod_config", {"resources": {"claims": [{"name": "g"}]}}),
    ("extra_container_config", {"envFrom": [], "resources": {"claims": [{"name": "g"}]}}),
    ("extra_container_config", {"resources": {"requests": GPU}}),
    ("extra_container_config", {"securityContext": {"privileged": True}}),
    ("extra_container_config", {"security_context": {"privileged": True}}),
    (
        "extra_container_config",
        {"volume_mounts": [{"name": "n", "mountPath": "/var/run/nvidia-container-devices/all"}]},
    ),
    ("environment", {"HABANA_VISIBLE_DEVICES": lambda spawner: "all"}),
    ("environment", {"AMD_VISIBLE_DEVICES": {"valueFrom": {"fieldRef": {"fieldPath": "x"}}}}),
    ("extra_labels", {"gpulease/lease": "l1"}),
    ("volumes", {"course": {"name": "dev", "hostPath": {"path": "/dev/"}}}),
    ("init_containers", {"one": {"name": "i", "image": "x", "resources": {"limits": GPU}}}),
]


def _with_runtime_class(pod):
    pod.spec.runtime_class_name = "nvidia"
    return pod


@pytest.mark.parametrize("setting", WAYS)
async def test_each_setting_that_brings_a_gpu_is_refused(make_spawner, caplog, setting):
    spawner = make_spawner(**{setting: WAYS[setting]})
    with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="400") as refused:
        await start(spawner)
    error = refused.value
    shown = getattr(error, "jupyterhub_message", None) or error.message
    assert error.status_code == 400
    assert error.reason == "gpu_in_server"
    assert "Your server was not started" in shown
    assert "%%gpu" in shown
    assert "Refused the pod of stu: spec." in caplog.text or "metadata." in caplog.text


@pytest.mark.parametrize("setting", WAYS)
async def test_each_setting_that_brings_a_gpu_is_stripped(make_spawner, caplog, setting):
    clean = await start(make_spawner())
    spawner = make_spawner(gpulease_guard="strip", **{setting: WAYS[setting]})
    with caplog.at_level(logging.WARNING):
        pod = await start(spawner)
    assert "Took out of the pod of stu" in caplog.text
    from gpulease.hub import guard

    assert guard.inspect(pod) == ()
    # What the pod is for is still there.
    assert notebook(pod)["image"] == notebook(clean)["image"]
    assert set(environment(pod)) == set(environment(clean))


@pytest.mark.parametrize(("setting", "value"), RAW, ids=[f"{k}-{v}"[:60] for k, v in RAW])
async def test_raw_words_of_a_site_are_read_in_either_spelling(make_spawner, setting, value):
    with pytest.raises(Exception, match="400"):
        await start(make_spawner(**{setting: value}))


@pytest.mark.parametrize(
    "value", ["all", " void ", {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
)
async def test_the_variable_is_void_whatever_the_environment_says(make_spawner, value):
    pod = await start(make_spawner(environment={"NVIDIA_VISIBLE_DEVICES": value}))
    found = [each for each in notebook(pod)["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
    assert found == [_void()]


async def test_a_config_map_brings_no_device(make_spawner):
    source = {"envFrom": [{"configMapRef": {"name": "course"}}]}
    told = environment(await start(make_spawner(extra_container_config=source)))
    assert told["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert told["HABANA_VISIBLE_DEVICES"] == told["AMD_VISIBLE_DEVICES"] == ""


OPENED = {
    "gpulease_guard_exempt": ["device_resource", "visible_devices"],
    "gpulease_guard": "strip",
    "extra_resource_limits": GPU,
}


@pytest.mark.parametrize("way", ["profile", "group", "hook"])
async def test_no_profile_group_or_hook_opens_the_guard_for_its_own_pod(make_spawner, caplog, way):
    c, user = Config(), Groups(groups=["staff"])
    if way == "profile":
        c.KubeSpawner.profile_list = [{"display_name": "x", "kubespawner_override": OPENED}]
    elif way == "group":
        groups = {"x": {"groups": ["staff"], "spawner_override": OPENED}}
        c.Spawner.group_overrides = groups
    else:

        def hook(spawner, pod):
            for name, value in OPENED.items():
                setattr(spawner, name, value)
            pod.spec.containers[0].resources = {"limits": GPU}
            return pod

        c.KubeSpawner.modify_pod_hook = hook
    with pytest.raises(Exception, match=r"nvidia\.com/gpu"):
        await start(make_spawner(c, user=user))
    assert "changed the guard for the pod of stu: this does not count" in caplog.text


async def test_an_exempt_rule_and_a_sites_own_names(make_spawner):
    pod = await start(make_spawner(privileged=True, gpulease_guard_exempt=["privileged"]))
    assert notebook(pod)["securityContext"]["privileged"] is True
    spawner = make_spawner(
        extra_resource_limits={"example.com/card": "1"},
        gpulease_gpu_resources=["example.com/*"],
    )
    with pytest.raises(Exception, match=r"example\.com/card"):
        await start(spawner)


async def test_containers_of_the_site_are_shielded(make_spawner):
    extra = [{"name": "x", "image": "nvidia/cuda"}]
    pod = await start(make_spawner(extra_containers=extra, init_containers=extra))
    assert environment(pod, pod["spec"]["containers"][1]) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert environment(pod, pod["spec"]["initContainers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void"}


async def test_the_sites_hook_runs_and_cannot_forge_whose_server_it_is(make_spawner):
    async def hook(spawner, pod):
        pod.metadata.annotations["site"] = "own"
        pod.metadata.annotations[labels.USER] = "somebody-else"
        return pod

    pod = await start(make_spawner(modify_pod_hook=hook))
    assert pod["metadata"]["annotations"]["site"] == "own"
    assert pod["metadata"]["annotations"][labels.USER] == "stu"


async def test_a_hook_that_a_profile_brings_is_guarded_too(make_spawner):
    profiles = [{"display_name": "x", "kubespawner_override": {"modify_pod_hook": lambda s: hook}}]

    def hook(spawner, pod):
        return _with_runtime_class(pod)

    with pytest.raises(Exception, match="runtimeClassName nvidia"):
        await start(make_spawner(profile_list=profiles))


# What is on the list.

#: How a site places all its servers, and by which names they run.
PLACED = {
    "node_selector": {"pool": "students"},
    "tolerations": [{"key": "students", "operator": "Exists"}],
    "node_affinity_required": [{"matchExpressions": [{"key": "cores", "operator": "Exists"}]}],
    "node_affinity_preferred": [
        {
            "weight": 1,
            "preference": {
                "matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]
            },
        }
    ],
    "pod_affinity_preferred": [
        {
            "weight": 1,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app": "cache"}},
                "topologyKey": "kubernetes.io/hostname",
            },
        }
    ],
    "scheduler_name": "packer",
    "priority_class_name": "students",
    "service_account": "student-{username}",
    "extra_pod_config": {"runtimeClassName": "kata"},
}


async def test_what_a_site_configures_for_all_servers_is_on_the_list(make_spawner):
    pod = await start(make_spawner(**PLACED))
    assert pod["spec"]["serviceAccountName"] == "student-stu"
    assert pod["spec"]["runtimeClassName"] == "kata"


@pytest.mark.parametrize("setting", PLACED)
@pytest.mark.parametrize("mode", ["refuse", "strip"])
async def test_the_same_from_a_profile_is_refused_until_it_is_allowed(make_spawner, setting, mode):
    profiles = [{"display_name": "x", "kubespawner_override": {setting: PLACED[setting]}}]
    settings = {"profile_list": profiles, "gpulease_guard": mode}
    with pytest.raises(Exception, match="400") as refused:
        await start(make_spawner(**settings))
    shown = getattr(refused.value, "jupyterhub_message", None) or refused.value.message
    assert "which gpulease does not allow yet" in shown
    assert "GPU" not in shown
    line = shown.partition('asks for "')[2].partition('", which')[0]
    await start(make_spawner(**settings, gpulease_allow=[line]))


async def test_a_site_that_needs_a_gpu_label_for_all_is_still_refused(make_spawner):
    """The list adds to what is known to lead to a GPU; it takes nothing from it."""
    spawner = make_spawner(
        node_selector={"pool": "gpu-a100"}, gpulease_allow=["node *", "resource *"]
    )
    with pytest.raises(Exception, match="node selector pool=gpu-a100"):
        await start(spawner)


@pytest.mark.parametrize("way", ["profile", "hook"])
async def test_no_profile_or_hook_adds_to_the_list_for_its_own_pod(make_spawner, way):
    opened = {"gpulease_allow": ["*"], "extra_resource_limits": {"example.com/fuse": "1"}}
    c = Config()
    if way == "profile":
        c.KubeSpawner.profile_list = [{"display_name": "x", "kubespawner_override": opened}]
    else:

        def hook(spawner, pod):
            spawner.gpulease_allow = ["*"]
            pod.spec.containers[0].resources = {"limits": {"example.com/fuse": "1"}}
            return pod

        c.KubeSpawner.modify_pod_hook = hook
    with pytest.raises(Exception, match=r"resource example\.com/fuse"):
        await start(make_spawner(c))


# Overrides of one spawn and the next.


async def spawn_gpu_then_cpu(spawner):
    """Start with the GPU profile, then with the CPU profile, on one spawner, as after a failure."""
    with contextlib.suppress(tornado.web.HTTPError):  # refused, where the guard refuses
        await start(spawner, profile="gpu", image="big")
    return await start(spawner, profile="cpu")


async def test_the_plain_class_leaks_one_spawns_profile_into_the_next(make_spawner):
    """What this project fixes: if this fails, KubeSpawner has fixed it itself."""
    pod = await spawn_gpu_then_cpu(make_spawner(spawner_class=KubeSpawner, profile_list=PROFILES))
    assert notebook(pod)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert environment(pod)["COURSE"] == "deep"
    assert notebook(pod)["securityContext"]["runAsUser"] == 7


@pytest.mark.parametrize("mode", ["refuse", "strip"])
async def test_ours_starts_each_spawn_from_the_configured_settings(make_spawner, mode):
    fresh = make_spawner(profile_list=PROFILES, gpulease_guard=mode)
    expected = await start(fresh, profile="cpu")
    used = make_spawner(profile_list=PROFILES, gpulease_guard=mode)
    pod = await spawn_gpu_then_cpu(used)
    for each in (expected, pod):
        each_env = notebook(each)["env"]
        each_env[:] = [entry for entry in each_env if entry["name"] != "PYTHONHASHSEED"]
    assert pod == expected


FUSE = ["resource example.com/fuse"]
NESTED = [
    {
        "display_name": "x",
        "slug": "x",
        "kubespawner_override": {
            "extra_container_config": {"resources": {"limits": {"example.com/fuse": "1"}}}
        },
        "profile_options": {
            "more": {
                "display_name": "More",
                "unlisted_choice": {
                    "enabled": True,
                    "display_name": "Which",
                    "kubespawner_override": {
                        "extra_container_config": {"resources": {"limits": {"x.org/{value}": "1"}}},
                        "environment": {"WHICH": "{value}"},
                    },
                },
                "choices": {
                    "none": {"display_name": "None", "default": True, "kubespawner_override": {}},
                    "card": {
                        "display_name": "Card",
                        "kubespawner_override": {
                            "extra_container_config": {"resources": {"limits": GPU}}
                        },
                    },
                },
            }
        },
    }
]


@pytest.mark.parametrize("given", ["list", "function"])
async def test_one_option_leaks_into_nobody_elses_profile(make_spawner, given):
    """Options merge into what the profile has merged; a function gives all the same list."""
    profiles = NESTED if given == "list" else lambda spawner: NESTED
    ours = {"profile_list": profiles, "gpulease_allow": FUSE}
    expected = notebook(await start(make_spawner(**ours), profile="x"))
    used = make_spawner(**ours)
    for options in ({"more": "card"}, {"more--unlisted-choice": "one"}):
        with contextlib.suppress(tornado.web.HTTPError):
            await start(used, profile="x", **options)
    fresh = make_spawner(**ours, user=Groups(name="ada"))
    for spawner in (used, fresh):
        pod = notebook(await start(spawner, profile="x"))
        assert pod["resources"]["limits"] == expected["resources"]["limits"]
        assert "WHICH" not in environment({}, pod)


def overriding(groups):
    c = Config()
    c.Spawner.group_overrides = {
        "gpu": {"groups": groups, "spawner_override": {"extra_resource_limits": GPU}},
        "mount": {
            "groups": groups,
            "spawner_override": {"environment": {"GROUP": "own"}, "node_selector": {"a": "b"}},
        },
    }
    return c


@pytest.mark.parametrize("leaving", [True, False])
async def test_a_groups_overrides_end_with_the_membership(make_spawner, leaving):
    user = Groups(groups=["gpu-course"])
    spawner = make_spawner(
        overriding(["gpu-course"]), user=user, gpulease_guard="strip", gpulease_allow=["node a=b"]
    )
    pod = await start(spawner)
    assert environment(pod)["GROUP"] == "own"
    assert "nvidia.com/gpu" not in notebook(pod)["resources"].get("limits", {})
    if leaving:
        user.groups = []
    again = await start(spawner)
    assert ("GROUP" in environment(again)) is not leaving
    assert (again["spec"].get("nodeSelector") == {"a": "b"}) is not leaving


async def test_a_groups_gpu_is_refused(make_spawner):
    user = Groups(groups=["gpu-course"])
    with pytest.raises(Exception, match=r"nvidia\.com/gpu"):
        await start(make_spawner(overriding(["gpu-course"]), user=user))


async def test_what_hooks_change_before_a_spawn_ends_with_it(make_spawner):
    async def before(spawner):
        spawner.environment["TERM_TOKEN"] = "one"
        spawner.cmd = ["once"]

    spawner = make_spawner(pre_spawn_hook=before, environment={"SITE": "own"})
    spawner.clear_state()
    await spawner.run_pre_spawn_hook()
    assert spawner.environment["TERM_TOKEN"] == "one"
    spawner.clear_state()
    assert spawner.environment == {"SITE": "own"}
    assert spawner.cmd != ["once"]


async def test_options_forms_and_bound_defaults_survive(make_spawner):
    spawner = make_spawner(profile_list=PROFILES)
    form = await spawner.get_options_form()
    assert "CPU" in form
    assert "GPU" in form
    parsed = spawner.options_from_form({"profile": ["gpu"], "profile-option-gpu--image": ["big"]})
    assert parsed == {"profile": "gpu", "image": "big"}
    await spawn_gpu_then_cpu(spawner)
    assert await spawner.get_options_form() == form
    assert spawner.options_from_form({"profile": ["cpu"]}) == {"profile": "cpu"}


# KubeSpawner's other features.


async def test_a_namespace_for_each_user(make_spawner, monkeypatch):
    spawner = make_spawner(
        enable_user_namespaces=True,
        user_namespace_template="hub-{username}",
        user_namespace_labels={labels.INSTANCE: "gpulease"},
    )
    await start(spawner)
    assert spawner.namespace == "hub-stu"
    await start(spawner)
    assert spawner.namespace == "hub-stu"


async def test_a_namespace_open_to_devices_of_others_is_refused(make_spawner):
    spawner = make_spawner(
        enable_user_namespaces=True,
        user_namespace_labels={"resource.kubernetes.io/admin-access": "true"},
    )
    with pytest.raises(Exception, match="admin-access"):
        await start(spawner)


async def test_a_namespace_kept_in_the_hubs_database_stays(make_spawner):
    spawner = make_spawner()
    spawner.load_state({"namespace": "kept", "pod_name": "old", "kubespawner_version": "7"})
    await start(spawner)
    assert spawner.namespace == "kept"
    assert spawner.get_state()["namespace"] == "kept"


async def test_internal_ssl_mounts_its_secret(make_spawner):
    spawner = make_spawner(internal_ssl=True)
    spawner.cert_paths = {"keyfile": "k", "certfile": "c", "cafile": "a"}
    pod = await start(spawner)
    assert pod["spec"]["volumes"][-1]["secret"]["secretName"] == spawner.secret_name
    assert environment(pod)["JUPYTERHUB_SSL_KEYFILE"].endswith("ssl.key")


# How it is chosen.


@pytest.mark.parametrize(
    "chosen",
    ["kubespawner.KubeSpawner", KubeSpawner, "gpulease.hub.GPULeaseSpawner", GPULeaseSpawner],
)
def test_setup_takes_the_guarded_class_for_kubespawner(chosen):
    c = Config()
    c.JupyterHub.spawner_class = chosen
    setup_gpulease(c, service_url="http://gpulease:9980", service_token="s" * 32)
    assert c.JupyterHub.spawner_class is GPULeaseSpawner


async def test_a_sites_own_kind_of_kubespawner_is_guarded_and_keeps_its_ways(make_spawner):
    class Site(KubeSpawner):
        async def get_pod_manifest(self):
            pod = await super().get_pod_manifest()
            pod.metadata.annotations["site"] = "own"
            return pod

    c = Config()
    setup_gpulease(
        c, service_url="http://gpulease:9980", service_token="s" * 32, spawner_class=Site
    )
    chosen = c.JupyterHub.spawner_class
    assert issubclass(chosen, GPULeaseSpawner)
    assert issubclass(chosen, GPULeaseSpawnerMixin)
    c.KubeSpawner.mem_limit = "3G"
    c.Site.cpu_limit = 2
    pod = await start(make_spawner(c, spawner_class=chosen))
    assert pod["metadata"]["annotations"]["site"] == "own"
    assert notebook(pod)["resources"]["limits"] == {"memory": 3 * 2**30, "cpu": 2.0}
    c.KubeSpawner.extra_resource_limits = GPU
    with pytest.raises(Exception, match=r"nvidia\.com/gpu"):
        await start(make_spawner(c, spawner_class=chosen))
