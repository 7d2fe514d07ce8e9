"""What a front end gets from the kernel extension: the comm, Tab and inspection."""

from typing import Any

import pytest

from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel, Message
from tests.kernel.test_widgets import send

pytestmark = pytest.mark.processes


def talk(home: HomeKernel, code: str) -> list[dict[str, Any]]:
    """Run a cell and return what the gpulease comm said meanwhile and just after."""
    return _comm(home.run(code).messages)


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


def merged(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for delta in deltas for key, value in delta["state"].items()}


def test_snapshot_then_deltas(home: HomeKernel) -> None:
    home.run("%%gpu\nmine = [1, 2]")
    first = said(home, send(home, "comm_open", comm_id="front", target_name="gpulease", data={}))
    assert first["type"] == "snapshot"
    assert first["protocol"] == "1.0"
    assert first["state"]["phase"] == "attached"
    assert first["state"]["cells"] == "none"
    assert first["state"]["variables"]["mine"]["type"] == "list"
    deltas = talk(home, "%gpu on")
    assert deltas[0]["type"] == "delta"
    assert deltas[0]["state"]["cells"] == "all"
    assert [d["version"] for d in deltas] == sorted({d["version"] for d in deltas})
    assert deltas[0]["version"] > first["version"]
    off = send(home, "comm_msg", comm_id="front", data={"type": "cells", "which": "none"})
    assert said(home, off)["state"] == {"cells": "none"}
    again = send(home, "comm_msg", comm_id="front", data={"type": "snapshot"})
    assert said(home, again)["state"]["cells"] == "none"
    wrong = send(home, "comm_msg", comm_id="front", data={"type": "cells", "which": True})
    assert said(home, wrong)["reason"] == "bad_message"
    send(home, "comm_close", comm_id="front", data={})
    assert talk(home, "%gpu on") == []
    home.run("%gpu off")


def test_what_config_sets_is_told_and_taken_back_from_the_file(home: HomeKernel) -> None:
    send(home, "comm_open", comm_id="front", target_name="gpulease", data={})
    told = merged(talk(home, "%gpu config cells auto wait 7m"))
    assert (told["cells"], told["kept"]) == ("auto", {"wait": "420s", "cells": "auto"})
    told = merged(talk(home, "%gpu config cells default wait default"))
    assert (told["cells"], told["kept"]) == ("none", {})
    config = {"cells": "auto", "wait": "soon", "class": "", "env": "HF_TOKEN"}
    kept = said(
        home, send(home, "comm_msg", comm_id="front", data={"type": "kept", "config": config})
    )
    assert (kept["state"]["cells"], kept["state"].get("kept")) in (
        ("auto", None), ("auto", {"cells": "auto"}),
    )  # fmt: skip
    answer = home.run("%gpu config").text()
    assert "cells: auto" in answer
    assert "tokens taken: none" in answer  # never from a file
    home.run("%gpu config cells default")
    send(home, "comm_close", comm_id="front", data={})


def test_a_gpu_cell_is_told_with_its_cost(home: HomeKernel) -> None:
    home.run("%%gpu\nmade = 1")
    home.run("import os\nlarge = os.urandom(3_000_000)")
    first = said(home, send(home, "comm_open", comm_id="front", target_name="gpulease", data={}))
    assert first["state"]["last_cell"]["cell_id"] == ""  # no front end named it
    told = [d["state"] for d in talk(home, "%%gpu\nlen(large)") if "last_cell" in d["state"]]
    run = told[-1]["last_cell"]
    assert run["moved_bytes"] >= 3_000_000
    assert 0 <= run["moved_seconds"] < 60
    assert 0 < run["seconds"] < 60
    assert run["gpu_class"]
    assert run["ended"] > first["state"]["last_cell"]["ended"]
    assert not [d for d in talk(home, "here = 1") if "last_cell" in d["state"]]
    send(home, "comm_close", comm_id="front", data={})


def test_labs_own_name_of_a_cell_comes_back(home: HomeKernel) -> None:
    said(home, send(home, "comm_open", comm_id="front", target_name="gpulease", data={}))
    message = home.client.session.msg("execute_request", {"code": "%%gpu\n1", "silent": False})
    message["metadata"] = {"cellId": "the-cell"}
    home.client.shell_channel.send(message)
    run = wait_for(lambda: cell_told(home, message["header"]["msg_id"]), what="the cell's cost")
    assert run["cell_id"] == "the-cell"
    send(home, "comm_close", comm_id="front", data={})


def cell_told(home: HomeKernel, parent: str) -> dict[str, Any] | None:
    while home.client.iopub_channel.msg_ready():
        message = home.client.get_iopub_msg(timeout=1)
        for data in _comm([message]) if message["msg_type"] == "comm_msg" else ():
            if data.get("state", {}).get("last_cell"):
                return data["state"]["last_cell"]
    return None


def tab(home: HomeKernel, code: str) -> list[str]:
    found: list[str] = home.ask("complete", code=code, cursor_pos=len(code))["matches"]
    return found


def inspected(home: HomeKernel, code: str) -> dict[str, Any] | None:
    found = home.ask("inspect", code=code, cursor_pos=len(code))
    return found if found["found"] else None


def test_tab_and_inspection_for_what_lives_away(home: HomeKernel) -> None:
    home.run(
        "%%gpu\nopen_file = open('/dev/null')"
    )  # a value that cannot be copied to the notebook
    # The companion's first answers take longer than home waits: it imports what completes.
    wait_for(lambda: "open_file" in tab(home, "open_fi"), what="the name")
    wait_for(lambda: any(m.endswith("readline") for m in tab(home, "open_file.readl")))
    found = wait_for(lambda: inspected(home, "open_file"), what="its description")
    assert found is not None
    assert "TextIOWrapper" in found["data"]["text/plain"]
    assert inspected(home, "nowhere_at_all") is None
    assert tab(home, "impor"), "home's own Tab is as ever"


def test_labs_debugger_is_said_not_to_reach_gpu_cells(fresh: HomeKernel) -> None:
    fresh.connect()
    arguments = {"clientID": "test", "adapterID": "", "pathFormat": "path"}
    request = {"type": "request", "seq": 1, "command": "initialize", "arguments": arguments}
    message = fresh.client.session.msg("debug_request", request)
    fresh.client.control_channel.send(message)
    assert fresh.client.get_control_msg(timeout=60)["content"].get("success")
    assert "debugger does not reach GPU cells" in fresh.run("%%gpu\n1").shown()
    assert "debugger" not in fresh.run("%%gpu\n2").shown()
