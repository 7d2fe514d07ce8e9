"""The tests' own client of the API server, where that ends in the middle of an answer."""

import json
import socket
import threading
from pathlib import Path

import pytest

from testcluster.api import Api
from testcluster.pki import write_all


def test_an_answer_that_breaks_off_is_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that kill the server go on after an OSError, and after nothing else."""
    write_all(tmp_path, tmp_path, tmp_path / "kubeconfig")
    document = json.loads((tmp_path / "kubeconfig").read_text(encoding="utf-8"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        document["clusters"][0]["cluster"]["server"] = address
        (tmp_path / "kubeconfig").write_text(json.dumps(document), encoding="utf-8")
        monkeypatch.setattr("http.client.HTTPSConnection", _plain)
        answering = threading.Thread(target=_answer_half, args=(listener,))
        answering.start()
        with pytest.raises(ConnectionError, match="broke off"):
            Api(tmp_path / "kubeconfig").get("/api/v1/nodes")
        answering.join(30)


def _plain(host: str, port: int, **_: object) -> "object":
    import http.client

    return http.client.HTTPConnection(host, port, timeout=30)


def _answer_half(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
