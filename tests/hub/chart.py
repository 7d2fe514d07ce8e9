"""The Zero to JupyterHub chart with our values, rendered by helm, and its hub configuration run.

GPULEASE_CHART names the chart's folder.  Without it, or without helm (`make setup-cluster` builds
it), what needs the chart is skipped by name.
"""

import base64
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from tests.helm_values import shipped

VALUES = shipped.ROOT / "values-z2jh.yaml"
#: A tag of the chart's own is a placeholder until it is released.
KUBERNETES = "1.34.4"
#: Where the chart's hub image has its configuration.
_MOUNT = "/usr/local/etc/jupyterhub"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Install:
    """One usual way to install the chart.

    Attributes:
        values: what the site's own values file says.
        release: the release's name.
        namespace: where it goes.
        more: files of ours that are given after the values for every hub.
        servers: pattern of the namespace in which servers stand; "" is the hub's own.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    release: str = "jupyterhub"
    namespace: str = shipped.SERVERS
    more: tuple[str, ...] = ()
    servers: str = ""


def _https(kind: str, **more: Any) -> Install:
    hosts = [] if kind == "offload" else ["hub.example.org"]
    https = {"enabled": True, "type": kind, "hosts": hosts, **more}
    return Install({"proxy": {"https": https}})


INSTALLS: dict[str, Install] = {
    "defaults": Install(),
    "https letsencrypt": _https("letsencrypt", letsencrypt={"contactEmail": "it@example.org"}),
    "https manual": _https("manual", manual={"key": "the key", "cert": "the certificate"}),
    "https secret": _https("secret", secret={"name": "hub-tls"}),
    "https offload": _https("offload"),
    "base url": Install({"hub": {"baseUrl": "/jupyter"}}),
    "base url with a slash": Install({"hub": {"baseUrl": "/jupyter/"}}),
    "fullname": Install({"fullnameOverride": "uni"}),
    "name": Install({"nameOverride": "lab"}),
    "fullname and name": Install({"fullnameOverride": "uni", "nameOverride": "lab"}),
    "names by the release": Install({"fullnameOverride": None}, release="spring"),
    "release and namespace": Install(release="spring", namespace="teaching"),
    "a namespace for each user": Install(
        more=("user-namespaces/values-z2jh.yaml",), servers="jupyter-stu"
    ),
    "a namespace for each user elsewhere": Install(
        {"fullnameOverride": "uni"},
        namespace="teaching",
        more=("user-namespaces/values-z2jh.yaml",),
        servers="jupyter-stu",
    ),
    "no metadata block": Install({"singleuser": {"cloudMetadata": {"blockWithIptables": False}}}),
}


def helm() -> str | None:
    """Return helm, as the cluster's programs are built or from PATH."""
    from testcluster.build import helm_program

    built = helm_program()
    return str(built) if built.exists() else shutil.which("helm")


def why_no_chart() -> str:
    """Return why the chart cannot be rendered here, or an empty string."""
    if not os.environ.get("GPULEASE_CHART"):
        return "GPULEASE_CHART does not name the chart's folder"
    return "" if helm() else "helm is not built (make setup-cluster)"


needs_chart = pytest.mark.skipif(bool(why_no_chart()), reason=why_no_chart() or "the chart")


@lru_cache(maxsize=len(INSTALLS))
def rendered(name: str) -> tuple[Manifest, ...]:
    """Return the chart's objects for an install, with our values after the site's."""
    install = INSTALLS[name]
    done = subprocess.run(
        [
            *(str(helm()), "template", install.release, os.environ["GPULEASE_CHART"]),
            *("--namespace", install.namespace, "--kube-version", KUBERNETES),
            *("--values", "-", "--values", str(VALUES)),
            *(word for name in install.more for word in ("--values", str(shipped.ROOT / name))),
        ],
        input=yaml.safe_dump(dict(install.values)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def one(objects: tuple[Manifest, ...], kind: str, component: str) -> Manifest:
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
    mounted = directory / "mounted"
    for folder, kind in (("config", "ConfigMap"), ("secret", "Secret")):
        (mounted / folder).mkdir(parents=True)
        for key, text in one(objects, kind, "hub")["data"].items():
            plain = text if kind == "ConfigMap" else base64.b64decode(text).decode()
            (mounted / folder / key).write_text(plain)
    for key in ("jupyterhub_config.py", "z2jh.py"):
        text = (mounted / "config" / key).read_text().replace(_MOUNT, str(mounted))
        if importlib.util.find_spec("pycurl") is None:
            # The chart's image has it, to be faster; the configuration is the same without.
            text = text.replace("AsyncHTTPClient.configure(", "str(")
        (mounted / key).write_text(text)
    for each in objects:
        if each["kind"] == "Service":
            prefix = each["metadata"]["name"].upper().replace("-", "_")
            port = str(each["spec"]["ports"][0]["port"])
            monkeypatch.setenv(f"{prefix}_SERVICE_PORT", port)
    monkeypatch.setenv("POD_NAMESPACE", install.namespace)
    monkeypatch.setenv("GPULEASE_SERVICE_TOKEN", "for this test only" * 2)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "z2jh", raising=False)
    c, file = Config(), mounted / "jupyterhub_config.py"
    given = {"get_config": lambda: c, "c": c, "__file__": str(file), "__name__": "config"}
    try:
        exec(compile(file.read_text(), str(file), "exec"), given)
    finally:
        sys.modules.pop("z2jh", None)
    return c
