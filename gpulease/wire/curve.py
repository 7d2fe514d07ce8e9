"""The two ends' CurveZMQ sockets: one client, known by its key."""

from __future__ import annotations

import zmq
from zmq.utils import z85

from gpulease.channel.keys import Endpoint, KeyPair

#: The one client's routing id.
IDENTITY = b"home"
#: Messages that have come and were not read; a transfer has at most a window of pieces on its way.
_UNREAD = 32
#: Bytes of one frame; a piece has one million.
_FRAME = 64 * 2**20


def client(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: Endpoint, keys: KeyPair
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Return the client's socket, connected, and a monitor that tells when the server is lost."""
    socket = context.socket(zmq.DEALER)
    _prepare(socket)
    socket.identity = IDENTITY
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.curve_serverkey = endpoint.server_key.encode()
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    socket.connect(endpoint.address)
    return socket, monitor


def server(
    context: zmq.Context[zmq.Socket[bytes]], host: str, port: int = 0
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes], Endpoint]:
    """Return the server's socket, its authenticator's socket, and where it is; port 0: any."""
    zap = context.socket(zmq.REP)
    zap.linger = 0
    zap.bind("inproc://zeromq.zap.01")
    public, secret = zmq.curve_keypair()
    socket = context.socket(zmq.ROUTER)
    _prepare(socket)
    socket.router_handover = 1
    socket.curve_server = True
    socket.curve_secretkey = secret
    socket.curve_publickey = public
    socket.zap_domain = b"gpulease"
    socket.bind(f"tcp://{host}:{port or '*'}")
    address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return socket, zap, Endpoint(address, public.decode())


def _prepare(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.sndhwm = 0  # the wire's thread never waits: what may be sent is bounded by what is asked
    socket.rcvhwm = _UNREAD  # and who sends more than is read keeps it in memory of its own
    socket.maxmsgsize = _FRAME
    socket.heartbeat_ivl = 5000
    socket.heartbeat_timeout = 30000
    socket.reconnect_ivl = 100


def authenticate(zap: zmq.Socket[bytes], client_key: bytes) -> None:
    """Answer one question of the authenticator: only ``client_key`` (Z85) is let in."""
    parts = zap.recv_multipart()
    version, request_id, _domain, _address, _identity, mechanism, *credentials = parts
    known = (
        mechanism == b"CURVE" and len(credentials) == 1 and z85.encode(credentials[0]) == client_key
    )
    status = (b"200", b"OK") if known else (b"400", b"unknown key")
    zap.send_multipart([version, request_id, *status, b"", b""])
