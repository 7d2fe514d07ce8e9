"""A small driver of dynamic resource allocation with pretend devices.

It publishes a ResourceSlice and serves the real kubelet's DRA plugin API (v1), so that claims are
allocated by the real scheduler and prepared by the real kubelet.  It puts no device into a
container.  It goes by the name of NVIDIA's driver, as its device classes and attributes do.
"""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from testcluster.api import ApiError, Object
from testcluster.cluster import Cluster
from testcluster.layout import NODE
from testcluster.messages import message_classes
from tests.helpers import wait_for

DRIVER = "gpu.nvidia.com"
POOL = NODE
GROUP = "/apis/resource.k8s.io/v1"
_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1"

# A map's entries go over the wire as messages of key and value.
M = message_classes(
    _SERVICE,
    {
        "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
        "Request": {"claims": (1, "[Claim]")},
        "Device": {
            "request_names": (1, "[string]"),
            "pool_name": (2, "string"),
            "device_name": (3, "string"),
            "cdi_device_ids": (4, "[string]"),
        },
        "Prepared": {"devices": (1, "[Device]"), "error": (2, "string")},
        "PreparedEntry": {"key": (1, "string"), "value": (2, "Prepared")},
        "PrepareResponse": {"claims": (1, "[PreparedEntry]")},
        "Unprepared": {"error": (1, "string")},
        "UnpreparedEntry": {"key": (1, "string"), "value": (2, "Unprepared")},
        "UnprepareResponse": {"claims": (1, "[UnpreparedEntry]")},
    },
)
R = message_classes(
    "pluginregistration",
    {
        "PluginInfo": {
            "type": (1, "string"),
            "name": (2, "string"),
            "endpoint": (3, "string"),
            "supported_versions": (4, "[string]"),
        },
        "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
        "RegistrationStatusResponse": {},
        "InfoRequest": {},
    },
)


def device(name: str, product: str, memory: str, compute: str, **more: str) -> Object:
    """Return a slice's device with the attributes of NVIDIA's driver; `more` are texts."""
    attributes: Object = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{name}"},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": f"{compute}.0"},
    }
    for key, value in more.items():
        attributes[key] = {"string": value}
    root = attributes.pop("pcieRoot", None)
    if root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = root
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}


#: Two cards on one PCIe root and a slice of a third.
DEVICES = (
    device("gpu-0", "NVIDIA A100-SXM4-80GB", "80Gi", "8.0", pcieRoot="pci0000:10"),
    device("gpu-1", "NVIDIA A100-SXM4-80GB", "80Gi", "8.0", pcieRoot="pci0000:10"),
    device("gpu-2", "Tesla T4", "15360Mi", "7.5", pcieRoot="pci0000:20"),
    device("mig-3-0", "NVIDIA A100-SXM4-80GB", "9856Mi", "8.0", type="mig", profile="1g.10gb"),
)


class Driver:
    """The driver's two sockets and what the kubelet asked of it."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api
        self._endpoint = cluster.layout.directory / "kubelet/plugins" / f"{DRIVER}.sock"
        self._registry = cluster.layout.directory / "kubelet/plugins_registry" / f"{DRIVER}.sock"
        self._servers: list[grpc.Server] = []
        self.registered = ""
        self.prepared: dict[str, list[str]] = {}
        """UID of each prepared claim -> its devices."""

    def start(self) -> None:
        """Serve and wait until the kubelet has taken the driver."""
        self._serve(
            self._endpoint,
            f"{_SERVICE}.DRAPlugin",
            {
                "NodePrepareResources": (self._prepare, M["Request"]),
                "NodeUnprepareResources": (self._unprepare, M["Request"]),
            },
        )
        self._serve(
            self._registry,
            "pluginregistration.Registration",
            {
                "GetInfo": (self._info, R["InfoRequest"]),
                "NotifyRegistrationStatus": (self._status, R["RegistrationStatus"]),
            },
        )
        wait_for(lambda: self.registered, 120, "the kubelet to take the DRA driver")
        assert self.registered == "yes"

    def stop(self) -> None:
        """Stop serving; the kubelet forgets a driver whose registration socket is gone."""
        self._registry.unlink(missing_ok=True)
        for server in self._servers:
            server.stop(grace=1).wait()
        self._endpoint.unlink(missing_ok=True)

    def _serve(self, path: Any, service: str, methods: dict[str, Any]) -> None:
        path.unlink(missing_ok=True)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=request.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (method, request) in methods.items()
        }
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix://{path}")
        server.start()
        self._servers.append(server)

    def _info(self, request: Any, context: grpc.ServicerContext) -> Any:
        return R["PluginInfo"](
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(self._endpoint),
            supported_versions=["v1.DRAPlugin"],
        )

    def _status(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.registered = "yes" if request.plugin_registered else request.error or "refused"
        return R["RegistrationStatusResponse"]()

    def _prepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = M["PrepareResponse"]()
        for asked in request.claims:
            claim = self._api.get(
                f"{GROUP}/namespaces/{asked.namespace}/resourceclaims/{asked.name}"
            )
            results = claim["status"]["allocation"]["devices"]["results"]
            mine = [each for each in results if each["driver"] == DRIVER]
            devices = [
                M["Device"](
                    request_names=[each["request"]],
                    pool_name=each["pool"],
                    device_name=each["device"],
                )
                for each in mine
            ]
            self.prepared[asked.uid] = [each["device"] for each in mine]
            answer.claims.add(key=asked.uid, value=M["Prepared"](devices=devices))
        return answer

    def _unprepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = M["UnprepareResponse"]()
        for asked in request.claims:
            self.prepared.pop(asked.uid, None)
            answer.claims.add(key=asked.uid, value=M["Unprepared"]())
        return answer


@contextmanager
def driver(cluster: Cluster) -> Iterator[Driver]:
    """A registered driver whose devices can be claimed."""
    running = Driver(cluster)
    published = [
        _device_class(DRIVER, "gpu"),
        _device_class("mig.nvidia.com", "mig"),
        _resource_slice(),
    ]
    running.start()
    try:
        for each in published:
            _create_anew(cluster, each)
        # What a test that was killed left is given back now that there is a driver again.
        wait_for(lambda: not _allocated(cluster), 90, "devices free")
        yield running
        # A pod that goes when nobody can give its claim back hangs: let the last ones go first.
        wait_for(lambda: not running.prepared, 90, "every claim given back")
    finally:
        for each in published:
            cluster.api.delete(_path(each))
        running.stop()


def _allocated(cluster: Cluster) -> list[str]:
    """Return the claims that hold devices of this driver."""
    return [
        claim["metadata"]["name"]
        for claim in cluster.api.items(f"{GROUP}/resourceclaims")
        for each in (claim.get("status", {}).get("allocation") or {})
        .get("devices", {})
        .get("results", ())
        if each["driver"] == DRIVER
    ]


def _create_anew(cluster: Cluster, document: Object) -> None:
    try:
        cluster.api.create(document)
    except ApiError as error:
        if error.status != 409:  # left by a test that was killed
            raise
        cluster.api.delete(_path(document))
        wait_for(lambda: cluster.api.find(_path(document)) is None, 120, "the old one gone")
        cluster.api.create(document)


def _path(document: Object) -> str:
    plural = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices"}
    return f"{GROUP}/{plural[document['kind']]}/{document['metadata']['name']}"


def _device_class(name: str, kind: str) -> Object:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _resource_slice() -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{NODE}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
            "devices": list(DEVICES),
        },
    }
