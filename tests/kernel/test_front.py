"""What a front end gets from the kernel extension: the comm, Tab and inspection."""

from typing import Any

from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel, Message
from tests.kernel.test_widgets import send


def talk(home: HomeKernel, code: str) -> list[dict[str, Any]]:
    """Run a cell and return what the gpulease comm said meanwhile and just after."""
    return [m for m in _comm(home.run(code).messages)]


def _comm(messages: list[Message]) -> list[dict[str, Any]]:
    return [
        m["content"]["data"]
        for m in messages
        if m["msg_type"] == "comm_msg" and m["content"]["comm_id"] == "front"
    ]


def said(home: HomeKernel, parent: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        while home.client.iopub_channel.msg_ready():
            message = home.client.get_iopub_msg(timeout=1)
            if message["parent_header"].get("msg_id") == parent and _comm([message]):
                return _comm([message])[0]
        return None

    found = wait_for(look, what="the comm's answer")
    assert found is not None
    return found


def test_snapshot_then_deltas(home: HomeKernel) -> None:
    home.run("%%gpu\nmine = [1, 2]")
    first = said(home, send(home, "comm_open", comm_id="front", target_name="gpulease", data={}))
    assert first["type"] == "snapshot"
    assert first["protocol"] == "1.0"
    assert first["state"]["phase"] == "attached"
    assert first["state"]["sticky"] is False
    assert first["state"]["variables"]["mine"]["type"] == "list"
    deltas = talk(home, "%gpu on")
    assert deltas[0]["type"] == "delta"
    assert deltas[0]["state"]["sticky"] is True
    assert [d["version"] for d in deltas] == sorted({d["version"] for d in deltas})
    assert deltas[0]["version"] > first["version"]
    off = send(home, "comm_msg", comm_id="front", data={"type": "sticky", "on": False})
    assert said(home, off)["state"] == {"sticky": False}
    again = send(home, "comm_msg", comm_id="front", data={"type": "snapshot"})
    assert said(home, again)["state"]["sticky"] is False
    wrong = send(home, "comm_msg", comm_id="front", data={"type": "sticky", "on": "yes"})
    assert said(home, wrong)["reason"] == "bad_message"
    send(home, "comm_close", comm_id="front", data={})
    assert talk(home, "%gpu on") == []
    home.run("%gpu off")


def test_tab_and_inspection_for_what_lives_away(home: HomeKernel) -> None:
    # A value beyond the small ones stays away until somebody needs it.
    home.run("%%gpu\nimport numpy as np\nlarge_array = np.zeros(40_000_000)")
    names = home.ask("complete", code="large_arr", cursor_pos=9)["matches"]
    assert "large_array" in names
    members = home.ask("complete", code="large_array.resh", cursor_pos=16)["matches"]
    assert any(match.endswith("reshape") for match in members)
    found = home.ask("inspect", code="large_array", cursor_pos=11)
    assert found["found"]
    assert "ndarray" in found["data"]["text/plain"]
    assert not home.ask("inspect", code="nowhere_at_all", cursor_pos=14)["found"]
    assert home.ask("complete", code="impor", cursor_pos=5)["matches"], "home's own Tab is as ever"
