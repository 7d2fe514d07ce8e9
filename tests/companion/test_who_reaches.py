"""Who reaches a companion's Jupyter channels: its home kernel, known by its key, alone."""

import asyncio

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from tests.companion.parts import leased

CHANNELS = {
    "shell": zmq.DEALER,
    "control": zmq.DEALER,
    "stdin": zmq.DEALER,
    "iopub": zmq.SUB,
    "hb": zmq.REQ,
}
OUTCOMES = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: "let in",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "refused",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "refused",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "refused",
}


async def _outcome(connection, channel, keys) -> str:
    context = zmq.asyncio.Context()
    socket = context.socket(CHANNELS[channel])
    socket.linger = 0
    socket.curve_publickey, socket.curve_secretkey = keys
    socket.curve_serverkey = connection["curve_publickey"].encode()
    monitor = socket.get_monitor_socket(sum(OUTCOMES))
    try:
        socket.connect(f"tcp://{connection['ip']}:{connection[f'{channel}_port']}")
        async with asyncio.timeout(30):
            event = await recv_monitor_message(monitor)
        return OUTCOMES[event["event"]]
    finally:
        socket.disable_monitor()
        context.destroy(linger=0)


def test_only_the_home_kernels_key_is_let_in_on_each_channel():
    async def test():
        async with leased() as (_, _lease, home):
            connection = (await home.open("k1"))["ok"]["connection"]
            everybody = {
                "home": (home.wire_public.encode(), home.wire_secret),
                "a stranger": zmq.curve_keypair(),
                "who has the control channel's key": (
                    home.public.encode(),
                    home.secret.encode(),
                ),
            }
            found = {
                channel: [
                    who
                    for who, keys in everybody.items()
                    if await _outcome(connection, channel, keys) == "let in"
                ]
                for channel in CHANNELS
            }
            assert found == {channel: ["home"] for channel in CHANNELS}

    asyncio.run(test())


def test_the_companions_own_secret_key_stays_with_it():
    async def test():
        async with leased() as (_, _lease, home):
            connection = (await home.open("k1"))["ok"]["connection"]
            assert "curve_secretkey" not in connection

    asyncio.run(test())
