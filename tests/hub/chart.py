"""The Zero to JupyterHub chart with our values, rendered by helm, and its hub configuration run.

GPULEASE_CHART names the chart's folder.  Without it, or without helm (`make setup-cluster` builds
it), what needs the chart is skipped by name.
"""

import base64
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from testcluster.build import HELM, KUBECTL
from testcluster.own_chart import LOADER, hub_values, program
from tests.helm_values import shipped

#: A tag of the chart's own is a placeholder until it is released.
KUBERNETES = "1.34.4"
#: Where the chart's hub image has its configuration.
_MOUNT = "/usr/local/etc/jupyterhub"

_EVERYWHERE = {"ClusterRole", "ClusterRoleBinding", "PriorityClass"}

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Install:
    """One usual way to install the chart.

    Attributes:
        values: what the site's own values file says.
        release: the release's name.
        namespace: where it goes.
        given: what gpulease's chart is given beside the namespace.
        servers: pattern of the namespace in which servers stand; "" is the hub's own.
        allowed: lines that the site adds to the admission policy; `gpulease doctor --hub` has them.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    release: str = "jupyterhub"
    namespace: str = shipped.SERVERS
    given: Mapping[str, Any] = field(default_factory=dict)
    servers: str = ""
    allowed: tuple[str, ...] = ()

    @property
    def ours(self) -> dict[str, Any]:
        """The values of gpulease's chart."""
        hub = {"namespace": self.namespace, **self.given.get("hub", {})}
        return {**self.given, "hub": hub}


USERS = {"userNamespaces": {"enabled": True}}


def _hub(**given: str) -> Mapping[str, Any]:
    """Return what gpulease's chart is told of a hub."""
    return {"hub": given}


def _https(kind: str, **more: Any) -> Install:
    hosts = [] if kind == "offload" else ["hub.example.org"]
    https = {"enabled": True, "type": kind, "hosts": hosts, **more}
    return Install({"proxy": {"https": https}})


#: What servers, init and side containers of a course run.
COURSE_IMAGE = "quay.io/jupyter/scipy-notebook:2026-06-01"
#: A course as its admins would write it: profiles, what runs before and beside a notebook, a node
#: pool of its own, another metadata address, culling, images pulled ahead, placeholders.
COURSE: dict[str, Any] = {
    "cull": {"timeout": 7200, "every": 300, "maxAge": 172800, "adminUsers": False},
    "prePuller": {"extraImages": {"course": {"name": "quay.io/jupyter/base-notebook", "tag": "1"}}},
    "scheduling": {
        "podPriority": {"enabled": True},
        "userPlaceholder": {"enabled": True, "replicas": 3},
    },
    "singleuser": {
        "nodeSelector": {"hub.jupyter.org/node-purpose": "user"},
        "cloudMetadata": {"ip": "100.100.100.200"},
        "initContainers": [
            {
                "name": "course-files",
                "image": COURSE_IMAGE,
                "command": ["sh", "-c", "mkdir -p /home/jovyan/course"],
                "volumeMounts": [{"name": "volume-{user_server}", "mountPath": "/home/jovyan"}],
            }
        ],
        "extraContainers": [
            {
                "name": "data",
                "image": COURSE_IMAGE,
                "command": ["python3", "-m", "http.server", "--bind", "127.0.0.1", "9000"],
                "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            }
        ],
        "profileList": [
            {
                "display_name": "Lectures",
                "slug": "lectures",
                "default": True,
                "kubespawner_override": {"image": COURSE_IMAGE, "mem_limit": "2G"},
            },
            {
                "display_name": "Project",
                "slug": "project",
                "kubespawner_override": {"image": COURSE_IMAGE, "environment": {"COURSE": "ml"}},
                "profile_options": {
                    "size": {
                        "display_name": "Memory",
                        "choices": {
                            "small": {
                                "display_name": "2 GB",
                                "default": True,
                                "kubespawner_override": {"mem_limit": "2G"},
                            },
                            "large": {
                                "display_name": "8 GB",
                                "kubespawner_override": {"mem_limit": "8G", "cpu_limit": 4},
                            },
                        },
                    }
                },
            },
        ],
    },
}
#: What is chosen from its form.
COURSE_CHOICES: tuple[dict[str, str], ...] = (
    {},
    {"profile": "lectures"},
    {"profile": "project"},
    {"profile": "project", "size": "large"},
)

#: Behind the site's own ingress, with a database and a scheduler of its own, for many servers.
INGRESS: dict[str, Any] = {
    "ingress": {
        "enabled": True,
        "ingressClassName": "nginx",
        "hosts": ["hub.example.org"],
        "tls": [{"hosts": ["hub.example.org"], "secretName": "hub-tls"}],
    },
    "proxy": {"service": {"type": "ClusterIP"}},
    "hub": {
        "db": {"type": "postgres", "url": "postgresql+psycopg2://hub@db/hub", "password": "pw"},
        "allowNamedServers": True,
        "concurrentSpawnLimit": 10,
    },
    "scheduling": {"userScheduler": {"enabled": False}},
}
#: All homes in one claim, beside data that everybody reads.
ONE_CLAIM: dict[str, Any] = {
    "storage": {
        "type": "static",
        "static": {"pvcName": "homes", "subPath": "home/{username}"},
        "extraVolumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "nfs", "nfs": {"server": "nfs.example.org", "path": "/sets"}},
        ],
        "extraVolumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "nfs", "mountPath": "/sets", "readOnly": True},
        ],
    },
    "extraPodConfig": {
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "enableServiceLinks": False,
        "hostname": "notebook",
        "securityContext": {"fsGroup": 100, "fsGroupChangePolicy": "OnRootMismatch"},
        "shareProcessNamespace": True,
    },
    # Ours replaces this list, but not the rules beside it.
    "networkPolicy": {
        "egress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
        "egressAllowRules": {"nonPrivateIPs": False},
    },
}
#: Nothing is kept, and most of what a server's container can be told.
NO_HOME: dict[str, Any] = {
    "storage": {"type": "none"},
    "extraEnv": {"A": "1", "B": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}},
    "extraFiles": {"course": {"mountPath": "/etc/course.json", "data": {"a": 1}}},
    "lifecycleHooks": {"postStart": {"exec": {"command": ["sh", "-c", "true"]}}},
    "allowPrivilegeEscalation": True,
    "memory": {"guarantee": "1G", "limit": "2G"},
    "cpu": {"guarantee": 0.5, "limit": 2},
    "extraLabels": {"team": "physics"},
    "image": {"pullSecrets": ["registry"]},
}
#: Where servers run, and as whom (an account that the tests of admission make).
PLACED: dict[str, Any] = {
    "extraTolerations": [
        {"key": "pool", "operator": "Equal", "value": "u", "effect": "NoSchedule"}
    ],
    "nodeSelector": {"pool": "u"},
    "serviceAccountName": "other",
}

INSTALLS: dict[str, Install] = {
    "defaults": Install(),
    "https letsencrypt": _https("letsencrypt", letsencrypt={"contactEmail": "it@example.org"}),
    "https manual": _https("manual", manual={"key": "the key", "cert": "the certificate"}),
    "https secret": _https("secret", secret={"name": "hub-tls"}),
    "https offload": _https("offload"),
    "base url": Install({"hub": {"baseUrl": "/jupyter"}}, given=_hub(baseUrl="/jupyter")),
    "base url with a slash": Install(
        {"hub": {"baseUrl": "/jupyter/"}}, given=_hub(baseUrl="/jupyter/")
    ),
    "fullname": Install({"fullnameOverride": "uni"}, given=_hub(fullnameOverride="uni")),
    "name": Install({"nameOverride": "lab"}),
    "fullname and name": Install(
        {"fullnameOverride": "uni", "nameOverride": "lab"}, given=_hub(fullnameOverride="uni")
    ),
    "names by the release": Install(
        {"fullnameOverride": None},
        release="spring",
        given=_hub(fullnameOverride="spring-jupyterhub"),
    ),
    "release and namespace": Install(release="spring", namespace="teaching"),
    "a namespace for each user": Install(given=USERS, servers="jupyter-stu"),
    "a namespace for each user elsewhere": Install(
        {"fullnameOverride": "uni"},
        namespace="teaching",
        given={**USERS, **_hub(fullnameOverride="uni")},
        servers="jupyter-stu",
    ),
    "all names": Install(
        {"hub": {"baseUrl": "/jupyter"}, "fullnameOverride": "uni"},
        release="spring",
        namespace="teaching",
        given=_hub(baseUrl="/jupyter", fullnameOverride="uni", url="https://hub.example.org"),
    ),
    "a course": Install(COURSE),
    "ingress": Install(INGRESS),
    "one claim for all homes": Install({"singleuser": ONE_CLAIM}),
    "no home": Install({"singleuser": NO_HOME}),
    "a place and an account": Install(
        {"singleuser": PLACED},
        allowed=("node pool=u", "serviceAccountName other", "toleration pool=u"),
    ),
    "no metadata block": Install({"singleuser": {"cloudMetadata": {"blockWithIptables": False}}}),
}


def helm() -> str | None:
    """Return helm, as the cluster's programs are built or from PATH."""
    return program(HELM)


def kubectl() -> str | None:
    """Return kubectl in the same way."""
    return program(KUBECTL)


def why_no_chart() -> str:
    """Return why the chart cannot be rendered here, or an empty string."""
    if not os.environ.get("GPULEASE_CHART"):
        return "GPULEASE_CHART does not name the chart's folder"
    return "" if helm() else "helm is not built (make setup-cluster)"


needs_chart = pytest.mark.skipif(bool(why_no_chart()), reason=why_no_chart() or "the chart")


@lru_cache(maxsize=len(INSTALLS))
def rendered(name: str) -> tuple[Manifest, ...]:
    """Return the chart's objects for an install, with our values after the site's."""
    return render(INSTALLS[name])


def render(
    install: Install, last: Mapping[str, Any] | None = None, ours: str = ""
) -> tuple[Manifest, ...]:
    """Return the chart's objects; `last` are values that count before all others.

    `ours` are the values that gpulease's chart prints, by default for this install alone.
    """
    texts = (
        yaml.safe_dump(dict(install.values)),
        ours or hub_values(install.ours),
        yaml.safe_dump(dict(last or {})),
    )
    with tempfile.TemporaryDirectory() as directory:
        given = []
        for number, text in enumerate(texts):
            given.append(Path(directory) / f"{number}.yaml")
            given[-1].write_text(text, encoding="utf-8")
        done = subprocess.run(
            [
                *(str(helm()), "template", install.release, os.environ["GPULEASE_CHART"]),
                *("--namespace", install.namespace, "--kube-version", KUBERNETES),
                *(word for each in given for word in ("--values", str(each))),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    objects = tuple(each for each in yaml.load_all(done.stdout, Loader=LOADER) if each)
    for each in objects:
        if each["kind"] not in _EVERYWHERE:
            each["metadata"].setdefault("namespace", install.namespace)
    return objects


def one(objects: Sequence[Manifest], kind: str, component: str) -> Manifest:
    """Return the object of a kind that bears this component's label."""
    (found,) = (
        each
        for each in objects
        if each["kind"] == kind
        and each["metadata"]["labels"].get("app.kubernetes.io/component") == component
        and not each["metadata"].get("annotations", {}).get("helm.sh/hook")
    )
    return found


def configuration(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Run the rendered ``jupyterhub_config.py`` as the hub's container does; return its ``c``."""
    objects, install = rendered(name), INSTALLS[name]
    file = mount(objects, directory / "mounted")
    for key, value in service_ports(objects).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("POD_NAMESPACE", install.namespace)
    monkeypatch.setenv("GPULEASE_SERVICE_TOKEN", "for this test only" * 2)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "z2jh", raising=False)
    c = Config()
    given = {"get_config": lambda: c, "c": c, "__file__": str(file), "__name__": "config"}
    try:
        exec(compile(file.read_text(), str(file), "exec"), given)
    finally:
        sys.modules.pop("z2jh", None)
    return c


def mount(objects: Sequence[Manifest], directory: Path) -> Path:
    """Write what the hub's container has mounted; return its ``jupyterhub_config.py``."""
    for folder, kind in (("config", "ConfigMap"), ("secret", "Secret")):
        (directory / folder).mkdir(parents=True)
        for key, text in one(objects, kind, "hub")["data"].items():
            plain = text if kind == "ConfigMap" else base64.b64decode(text).decode()
            (directory / folder / key).write_text(plain)
    for key in ("jupyterhub_config.py", "z2jh.py"):
        text = (directory / "config" / key).read_text().replace(_MOUNT, str(directory))
        if importlib.util.find_spec("pycurl") is None:
            # The chart's image has it, to be faster; the configuration is the same without.
            text = text.replace("AsyncHTTPClient.configure(", "str(")
        (directory / key).write_text(text)
    return directory / "jupyterhub_config.py"


def service_ports(objects: Sequence[Manifest]) -> dict[str, str]:
    """Return the variables by which a pod knows the ports of Services beside it."""
    return {
        f"{each['metadata']['name'].upper().replace('-', '_')}_SERVICE_PORT": str(
            each["spec"]["ports"][0]["port"]
        )
        for each in objects
        if each["kind"] == "Service"
    }
