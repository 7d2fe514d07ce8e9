"""Who may speak at a lease's control server, and what it answers."""

import asyncio

import pytest

from gpulease.companion.ports import ControlServer
from gpulease.errors import GPULeaseError
from tests.companion.parts import Home
from tests.helpers import WaitedTooLongError, wait_for_async


async def _echo(name, args, kernel_id):
    if name == "refuse":
        raise GPULeaseError("nope", "Not now.", next_step="Later.", status=409)
    if name == "break":
        raise RuntimeError("a secret detail")
    return {"name": name, "args": args, "kernel": kernel_id}


def _with_control(test):
    async def run():
        control = ControlServer("127.0.0.1", _echo)
        homes = []

        def home(server_key=None):
            homes.append(Home(control.endpoint.address, server_key or control.endpoint.server_key))
            return homes[-1]

        try:
            await test(control, home)
        finally:
            for each in homes:
                each.close()
            await control.stop()

    asyncio.run(run())


def test_an_admitted_client_is_answered():
    async def test(control, home):
        client = home()
        control.admit(client.public, "k1")
        answer = await client.call("ping", a=1)
        assert answer["ok"] == {"name": "ping", "args": {"a": 1}, "kernel": "k1"}

    _with_control(test)


def test_an_unknown_client_key_is_not_heard():
    async def test(control, home):
        known = home()
        control.admit(known.public, "k1")
        with pytest.raises(WaitedTooLongError):
            await home().call("ping", seconds=1)
        assert (await known.call("ping"))["ok"]

    _with_control(test)


def test_a_wrong_server_key_gets_no_connection():
    async def test(control, home):
        import zmq

        stranger = home(zmq.curve_keypair()[0].decode())
        control.admit(stranger.public, "k1")
        with pytest.raises(WaitedTooLongError):
            await stranger.call("ping", seconds=1)

    _with_control(test)


def test_a_revoked_client_is_heard_no_more_on_its_open_connection():
    async def test(control, home):
        client = home()
        control.admit(client.public, "k1")
        assert (await client.call("ping"))["ok"]
        control.revoke(client.public)
        with pytest.raises(WaitedTooLongError):
            await client.call("ping", seconds=1)
        control.push({"push": "warn"})
        assert client.pushes == []

    _with_control(test)


def test_a_key_speaks_only_for_the_kernel_it_was_admitted_for():
    async def test(control, home):
        client = home()
        control.admit(client.public, "k1")
        answer = await client.call("open", kernel_id="k2")
        assert answer["problem"]["reason"] == "forbidden"

    _with_control(test)


def test_refusals_come_back_as_problems_and_failures_without_their_detail():
    async def test(control, home):
        client = home()
        control.admit(client.public, "k1")
        refused = (await client.call("refuse"))["problem"]
        assert (refused["reason"], refused["next_step"]) == ("nope", "Later.")
        broken = (await client.call("break"))["problem"]
        assert broken["reason"] == "internal"
        assert "secret" not in str(broken)

    _with_control(test)


def test_a_push_reaches_the_kernel_it_is_for():
    async def test(control, home):
        one, two = home(), home()
        control.admit(one.public, "k1")
        control.admit(two.public, "k2")
        await one.call("ping")
        await two.call("ping")
        control.push({"push": "companion_died", "kernel_id": "k1"}, "k1")
        control.push({"push": "warn", "until": "soon"})
        assert (await one.pushed("companion_died"))["kernel_id"] == "k1"
        assert (await two.pushed("warn"))["until"] == "soon"
        assert [push["push"] for push in two.pushes] == ["warn"]

    _with_control(test)


def test_a_client_that_has_gone_is_forgotten():
    """A home kernel that reconnects has a new identity each time; the old ones do not pile up."""

    async def test(control, home):
        for _ in range(5):
            client = home()
            control.admit(client.public, "k1")
            await client.call("ping")
            client.close()
        stays = home()
        control.admit(stays.public, "k1")
        await stays.call("ping")

        async def only_one():
            control.push({"push": "warn", "until": "soon"})
            return len(control._clients) == 1

        await wait_for_async(only_one, 30, "those that are gone are forgotten")
        assert await stays.pushed("warn")

    _with_control(test)
