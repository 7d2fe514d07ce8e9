"""Serves the kubelet's device plugin API, one server for each resource."""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from testcluster.devices import Devices, Resource
from testcluster.messages import message_classes

KUBELET_DIRECTORY = Path("/var/lib/kubelet/device-plugins")
KUBELET_SOCKET = KUBELET_DIRECTORY / "kubelet.sock"
POLL_SECONDS = 0.1

M = message_classes(
    "v1beta1",
    {
        "Empty": {},
        "DevicePluginOptions": {"pre_start_required": (1, "bool")},
        "RegisterRequest": {
            "version": (1, "string"),
            "endpoint": (2, "string"),
            "resource_name": (3, "string"),
            "options": (4, "DevicePluginOptions"),
        },
        "Device": {"ID": (1, "string"), "health": (2, "string")},
        "ListAndWatchResponse": {"devices": (1, "[Device]")},
        "ContainerAllocateRequest": {"devices_ids": (1, "[string]")},
        "AllocateRequest": {"container_requests": (1, "[ContainerAllocateRequest]")},
        "Mount": {
            "container_path": (1, "string"),
            "host_path": (2, "string"),
            "read_only": (3, "bool"),
        },
        "ContainerAllocateResponse": {
            "envs": (1, "{}"),
            "mounts": (2, "[Mount]"),
            "annotations": (4, "{}"),
        },
        "AllocateResponse": {"container_responses": (1, "[ContainerAllocateResponse]")},
    },
)


class Plugin:
    """One resource's server: what it offers changes with the devices' file."""

    def __init__(self, resource: Resource, allocations: Path) -> None:
        self.resource = resource
        self._allocations = allocations
        self._devices: Devices | None = None
        self._watchers: list[queue.Queue[None]] = []
        self._lock = threading.Lock()
        self.endpoint = resource.name.replace("/", "_") + ".sock"
        self._server: grpc.Server | None = None

    def update(self, devices: Devices) -> None:
        """Take over a change and tell every watching kubelet."""
        with self._lock:
            self._devices = devices
            for watcher in self._watchers:
                watcher.put(None)

    def serve(self) -> None:
        """Listen again: a kubelet that starts removes every plugin's socket."""
        if self._server is not None:
            self._server.stop(grace=0).wait()
        socket = KUBELET_DIRECTORY / self.endpoint
        socket.unlink(missing_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        server.add_generic_rpc_handlers((self._handlers(),))
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        self._server = server

    def register(self) -> None:
        """Announce the resource to the kubelet; raises grpc.RpcError when it does not listen."""
        with grpc.insecure_channel(f"unix://{KUBELET_SOCKET}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=M["RegisterRequest"].SerializeToString,
                response_deserializer=M["Empty"].FromString,
            )
            request = M["RegisterRequest"](
                version="v1beta1", endpoint=self.endpoint, resource_name=self.resource.name
            )
            call(request, timeout=5)

    def _handlers(self) -> grpc.GenericRpcHandler:
        def handler(make: Any, method: Any, request: str) -> grpc.RpcMethodHandler:
            return make(
                method,
                request_deserializer=M[request].FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )

        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": handler(unary, self._options, "Empty"),
                "ListAndWatch": handler(stream, self._watch, "Empty"),
                "Allocate": handler(unary, self._allocate, "AllocateRequest"),
            },
        )

    def _options(self, request: Any, context: grpc.ServicerContext) -> Any:
        return M["DevicePluginOptions"]()

    def _watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        changes: queue.Queue[None] = queue.Queue()
        with self._lock:
            self._watchers.append(changes)
        try:
            yield self._list()
            while context.is_active():
                try:
                    changes.get(timeout=1)
                except queue.Empty:
                    continue
                yield self._list()
        finally:
            with self._lock:
                self._watchers.remove(changes)

    def _list(self) -> Any:
        with self._lock:
            assert self._devices is not None
            broken = self._devices.unhealthy
        devices = [
            M["Device"](ID=each, health="Unhealthy" if card in broken else "Healthy")
            for each, card in self.resource.ids().items()
        ]
        return M["ListAndWatchResponse"](devices=devices)

    def _allocate(self, request: Any, context: grpc.ServicerContext) -> Any:
        assert self._devices is not None
        answer = M["AllocateResponse"]()
        cards = self.resource.ids()
        for asked in request.container_requests:
            container = answer.container_responses.add()
            ids = list(asked.devices_ids)
            visible = list(dict.fromkeys(cards[each] for each in ids))
            container.envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(visible)
            container.envs.update(self._devices.environment)
            for host, inside in self._devices.mounts:
                container.mounts.add(container_path=inside, host_path=host, read_only=True)
            line = {"time": time.time(), "resource": self.resource.name, "ids": ids}
            with self._allocations.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        return answer


def main(devices_path: Path, allocations: Path) -> None:
    """Serve until killed; register again whenever a new kubelet listens."""
    seen_kubelet: tuple[int, int] | None = None
    seen_devices = -1
    plugins: dict[Resource, Plugin] = {}
    while True:
        changed = devices_path.stat().st_mtime_ns
        if changed != seen_devices:
            seen_devices = changed
            devices = Devices.load(devices_path)
            for resource in devices.resources:
                if resource not in plugins:
                    plugins[resource] = Plugin(resource, allocations)
                    seen_kubelet = None
            for plugin in plugins.values():
                plugin.update(devices)
        kubelet = _identity(KUBELET_SOCKET)
        if kubelet is not None and kubelet != seen_kubelet:
            try:
                for plugin in plugins.values():
                    plugin.serve()
                    plugin.register()
                seen_kubelet = kubelet
                print("registered", ", ".join(r.name for r in plugins), flush=True)
            except grpc.RpcError as error:
                print(f"the kubelet does not answer yet: {error.code()}", flush=True)
        time.sleep(POLL_SECONDS)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
