"""The cluster as tests use it: start it, kill and start its programs, change its devices."""

import dataclasses
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testcluster import build, images, namespaces, pki
from testcluster.api import Api, ApiError, Object
from testcluster.components import CONTROL_PLANE, ORDER
from testcluster.configuration import files
from testcluster.devices import NODE_LABELS, Devices, default_devices
from testcluster.layout import NODE, Layout
from testcluster.packing import Image, write_archive
from testcluster.processes import Processes


class Cluster:
    """One running cluster.  Its API is reached from inside its network only (`enter`)."""

    def __init__(self, layout: Layout, programs: Path, holder: int) -> None:
        self.layout = layout
        self.processes = Processes(layout, programs, holder)
        self._holder = holder

    @staticmethod
    def up(directory: Path, *, attached: bool = True, with_service: bool = False) -> "Cluster":
        """Start a cluster in an empty directory; its programs must be built.

        `attached`: it ends with the calling process.  Raises RuntimeError when a part does not
        come up, with the last lines of its log; whatever had started is ended then.
        """
        programs = build.programs_directory()
        missing = build.missing_programs()
        if missing:
            names = ", ".join(each.name for each in missing)
            raise RuntimeError(f"not built: {names} (make setup-cluster)")
        directory.mkdir(parents=True, exist_ok=True)
        layout = namespaces.claim(directory.resolve())
        try:
            layout.make()
            layout.save()
            pki.write_all(layout.pki, layout.config, layout.kubeconfig)
            for path, text in files(layout).items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            default_devices().save(layout.devices)
            holder = namespaces.make(layout, images.pause_program(), attached)
            cluster = Cluster(layout, programs, holder)
            cluster._start_all(with_service=with_service)
        except BaseException:
            namespaces.remove(layout)
            raise
        return cluster

    @staticmethod
    def at(directory: Path) -> "Cluster":
        """Return the cluster that runs in this directory; raises RuntimeError when none does."""
        layout = Layout.load(directory)
        holder = namespaces.holder_of(layout)
        if holder is None:
            raise RuntimeError(f"the cluster in {directory} does not run")
        return Cluster(layout, build.programs_directory(), holder)

    def stop(self) -> None:
        """End everything and unmount it; the directory with the logs stays."""
        namespaces.remove(self.layout)

    def enter(self) -> None:
        """Move this thread, and all it starts from now on, into the cluster's network."""
        namespaces.enter_network(self.layout)

    def kill(self, name: str) -> None:
        """End a program with SIGKILL."""
        self.processes.kill(name)

    def start(self, name: str) -> None:
        """Start a program that was killed."""
        self.processes.start(name)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """Run a block while a program is killed; it runs again afterwards."""
        self.kill(name)
        try:
            yield
        finally:
            self.start(name)

    @contextmanager
    def patient(self, seconds: int) -> Iterator[None]:
        """Run a block while a node is lost only after so many silent seconds.

        Whoever plays many nodes on a busy machine is late now and then.
        """
        self.layout.node_grace.write_text(str(seconds), encoding="ascii")
        try:
            with self.without("kube-controller-manager"):
                pass
            yield
        finally:
            self.layout.node_grace.unlink()
            with self.without("kube-controller-manager"):
                pass

    @property
    def api(self) -> Api:
        """A client with all rights; usable inside the cluster's network only."""
        return Api(self.layout.kubeconfig)

    def devices(self, **changes: object) -> None:
        """Change what the node shows: fields of `Devices`."""
        now = Devices.load(self.layout.devices)
        dataclasses.replace(now, **changes).save(self.layout.devices)  # type: ignore[arg-type]

    def audited(self) -> list[Object]:
        """Return what the audit log holds so far: one event for each answered request."""
        text = self.layout.audit_log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def load_images(self, *, with_service: bool = False, tag: str = "1") -> None:
        """Make the images from this checkout and import them."""
        self.import_images(images.images(with_service=with_service, tag=tag))

    def import_images(self, made: Sequence[Image]) -> None:
        """Import images, which pods then find by their names."""
        archive = self.layout.directory / f"images-{os.getpid()}.tar"
        try:
            write_archive(archive, made)
            self._ctr("images", "import", str(archive))
        finally:
            archive.unlink(missing_ok=True)

    def wait_for_api(self) -> None:
        """Wait until the API server says that it is ready; the caller must be inside."""
        self.processes.wait_until(self._api_is_ready, "kube-apiserver")

    def node_is_ready(self) -> bool:
        """Tell whether node, devices and the default service account are there; label the node."""
        api = self.api
        node = api.find(f"/api/v1/nodes/{NODE}")
        if node is None:
            return False
        if "nvidia.com/gpu.present" not in node["metadata"]["labels"]:
            api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": NODE_LABELS}})
        account = api.find("/api/v1/namespaces/default/serviceaccounts/default")
        return is_ready(node) and _shows_devices(node, self.layout) and account is not None

    def _start_all(self, *, with_service: bool) -> None:
        with namespaces.visiting(self.layout):
            for name in (*CONTROL_PLANE[:2], "containerd"):
                self.processes.start(name)
            self.processes.wait_until(self.layout.containerd_socket.exists, "containerd")
            self.load_images(with_service=with_service)
            self.wait_for_api()
            for name in ORDER:
                self.processes.start(name)
            self.processes.wait_until(self.node_is_ready, "kubelet")

    def _ctr(self, *arguments: str) -> None:
        command = [
            *namespaces.entering(self._holder),
            *("ctr", "--address", str(self.layout.containerd_socket), "--namespace", "k8s.io"),
        ]
        deadline = time.monotonic() + 60
        while True:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return
            if "connection refused" not in done.stderr or time.monotonic() > deadline:
                raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
            time.sleep(0.1)

    def _api_is_ready(self) -> bool:
        try:
            self.api.request("GET", "/readyz")
        except (OSError, ssl.SSLError, ApiError):
            return False
        return True


def is_ready(node: Object) -> bool:
    """Whether a node says that it is Ready."""
    conditions = node["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _shows_devices(node: Object, layout: Layout) -> bool:
    shown = node["status"].get("allocatable", {})
    wanted = {each.name: len(each.ids()) for each in Devices.load(layout.devices).resources}
    return all(shown.get(name) == str(number) for name, number in wanted.items())
