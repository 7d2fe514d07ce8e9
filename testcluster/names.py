"""A name server for Services, as a cluster's DNS would be: asks the API server at each question.

A Service's name leads to the addresses of its ready endpoints, as a headless one's does: there is
no kube-proxy here that would answer at its own address.  Everything else has no name.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from testcluster.api import Api, ApiError, Object, path_of
from testcluster.layout import NODE_ADDRESS

DOMAIN = "svc.cluster.local"
PORT = 53
_HEADER = struct.Struct(">6H")
_A, _IN = 1, 1
_NO_ERROR, _FAILED, _NO_SUCH_NAME = 0, 2, 3
_ANSWER_BITS = 0x8180  # an answer; recursion was asked for and is there
_END = b""  # no question is so short
_POINTER = 0xC00C  # to the name in the question


def resolver(namespace: str) -> str:
    """Return /etc/resolv.conf of a pod in a namespace, as the kubelet writes it."""
    search = f"{namespace}.{DOMAIN} {DOMAIN} {DOMAIN.partition('.')[2]}"
    return f"nameserver {NODE_ADDRESS}\nsearch {search}\noptions ndots:5\n"


def pod_settings(namespace: str) -> dict[str, object]:
    """Return the same as part of a pod's spec."""
    lines = [line.split() for line in resolver(namespace).splitlines()]
    options = [{"name": "ndots", "value": "5"}]
    config = {"nameservers": lines[0][1:], "searches": lines[1][1:], "options": options}
    return {"dnsPolicy": "None", "dnsConfig": config}


@contextmanager
def answering(api: Api) -> Iterator[None]:
    """Answer at the node's address; the caller is inside the cluster's network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((NODE_ADDRESS, PORT))
        thread = threading.Thread(target=_answer_all, args=(listening, api), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.sendto(_END, (NODE_ADDRESS, PORT))
            thread.join(60)


def at_the_node(
    name: str, namespace: str, ports: list[Object], address: str = NODE_ADDRESS
) -> Object:
    """Return what says that a Service is answered at an address of the node."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": ports,
    }


@contextmanager
def given(api: Api, name: str, namespace: str, port: int) -> Iterator[None]:
    """Give a process at the node's address the name of a Service, until the end."""
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    metadata = {"name": name, "namespace": namespace}
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    with contextlib.ExitStack() as made:
        for document in (service | {"spec": {"ports": ports}}, at_the_node(name, namespace, ports)):
            api.create(document)
            made.callback(api.delete, path_of(document))
        yield


def _answer_all(listening: socket.socket, api: Api) -> None:
    while True:
        question, asker = listening.recvfrom(512)
        if question == _END:
            return
        listening.sendto(_answer(question, api), asker)


def _answer(question: bytes, api: Api) -> bytes:
    number = _HEADER.unpack_from(question)[0]
    name, kind, end = _asked(question)
    try:
        found = addresses(api, name)
    except (ApiError, OSError):
        found, code = [], _FAILED
    else:
        code = _NO_SUCH_NAME if found is None else _NO_ERROR
    given = (found or []) if kind == _A else []
    header = _HEADER.pack(number, _ANSWER_BITS | code, 1, len(given), 0, 0)
    records = [
        struct.pack(">3HIH", _POINTER, _A, _IN, 1, 4) + socket.inet_aton(each) for each in given
    ]
    return header + question[_HEADER.size : end] + b"".join(records)


def _asked(question: bytes) -> tuple[str, int, int]:
    """Return the name, the kind of record, and where the question ends."""
    place, parts = _HEADER.size, []
    while length := question[place]:
        parts.append(question[place + 1 : place + 1 + length].decode("ascii").lower())
        place += length + 1
    (kind,) = struct.unpack_from(">H", question, place + 1)
    return ".".join(parts), kind, place + 5


def addresses(api: Api, name: str) -> list[str] | None:
    """Return where a Service's ready endpoints are; None where there is no such Service."""
    parts = name.removesuffix(f".{DOMAIN}").split(".")
    if not name.endswith(f".{DOMAIN}") or len(parts) != 2:
        return None
    service, namespace = parts
    if api.find(f"/api/v1/namespaces/{namespace}/services/{service}") is None:
        return None
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = api.items(path, labelSelector=f"kubernetes.io/service-name={service}")
    return sorted(
        address
        for each in slices
        for endpoint in each.get("endpoints") or []
        if endpoint.get("conditions", {}).get("ready") is not False
        for address in endpoint["addresses"]
    )
