"""Widgets of GPU cells: alive in the notebook, their callbacks beside the GPU."""

from pathlib import Path
from typing import Any

from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel, Message, printed

BUTTON = (
    "%%gpu\nimport ipywidgets, os\nclicks = []\n"
    "def clicked(button):\n    clicks.append(os.getpid())\n    print('clicked', len(clicks))\n"
    "button = ipywidgets.Button(description='go')\nbutton.on_click(clicked)\nbutton"
)


def opened(messages: list[Message], model: str) -> str:
    """The comm id of the widget model that a cell opened."""
    return next(
        m["content"]["comm_id"]
        for m in messages
        if m["msg_type"] == "comm_open" and m["content"]["data"]["state"]["_model_name"] == model
    )


def send(home: HomeKernel, kind: str, **content: Any) -> str:
    """Send a comm message as a front end does; return its id."""
    message = home.client.session.msg(kind, content, metadata=content.pop("metadata", {}))
    home.client.shell_channel.send(message)
    found: str = message["header"]["msg_id"]
    return found


def heard(home: HomeKernel, parent: str, kind: str) -> Message:
    """Wait for an iopub message of this kind and parent."""

    def look() -> Message | None:
        while home.client.iopub_channel.msg_ready():
            message: Message = home.client.get_iopub_msg(timeout=1)
            if message["msg_type"] == kind and message["parent_header"].get("msg_id") == parent:
                return message
        return None

    found = wait_for(look, what=f"{kind} caused by {parent}")
    assert found is not None
    return found


def test_a_callback_runs_away_and_its_output_belongs_to_the_click(home: HomeKernel) -> None:
    cell = home.run(BUTTON)
    comm_id = opened(cell.messages, "ButtonModel")
    data = {"method": "custom", "content": {"event": "click"}}
    click = send(home, "comm_msg", comm_id=comm_id, data=data)
    assert heard(home, click, "stream")["content"]["text"] == "clicked 1\n"
    pids = home.run("%%gpu\nclicks, os.getpid()").result
    found, companion = eval(pids or "")
    assert found == [companion], "the callback ran in the companion"
    assert home.run("len(clicks)").result == "1", "and what it changed is home"


def test_a_slider_moves_away(home: HomeKernel) -> None:
    cell = home.run("%%gpu\nimport ipywidgets\nslider = ipywidgets.IntSlider(value=1)\nslider")
    comm_id = opened(cell.messages, "IntSliderModel")
    data = {"method": "update", "state": {"value": 9}, "buffer_paths": []}
    send(home, "comm_msg", comm_id=comm_id, data=data)
    wait_for(lambda: home.run("%%gpu\nslider.value").result == "9", what="the new value")


def test_a_click_waits_for_a_running_gpu_cell(home: HomeKernel) -> None:
    comm_id = opened(home.run(BUTTON).messages, "ButtonModel")
    data = {"method": "custom", "content": {"event": "click"}}
    cell = home.run(
        "%%gpu\nbefore = len(clicks)\nprint('busy', flush=True)\nimport time; time.sleep(0.5)\n"
        "len(clicks) - before",
        when=printed("busy"),
        do=lambda: send(home, "comm_msg", comm_id=comm_id, data=data),
    )
    assert cell.result == "0"
    wait_for(lambda: home.run("%%gpu\nlen(clicks)").result == "1", what="the click after it")


def test_a_click_at_home_waits_for_what_a_gpu_cell_changes(home: HomeKernel) -> None:
    made = home.run(
        "import ipywidgets\nlog = []\n"
        "def noted(button): log.append('click')\n"
        "here = ipywidgets.Button(description='here'); here.on_click(noted)\nhere"
    )
    comm_id = opened(made.messages, "ButtonModel")
    data = {"method": "custom", "content": {"event": "click"}}
    cell = home.run(
        "%%gpu\nlog.append('gpu')\nprint('busy', flush=True)\nimport time; time.sleep(0.5)\n"
        "log.append(len(log))",
        when=printed("busy"),
        do=lambda: send(home, "comm_msg", comm_id=comm_id, data=data),
    )
    assert cell.ok, cell.traceback
    assert "resolve" not in cell.shown(), "the click waited: nothing is in conflict"
    wait_for(lambda: home.run("log").result == "['gpu', 1, 'click']", what="the click after it")
    assert home.run("%%gpu\nlog").result == "['gpu', 1, 'click']"


def test_a_thread_at_home_and_a_gpu_cell_conflict(home: HomeKernel, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    until = "while not os.path.exists({!r}): time.sleep(0.01)"
    home.run(
        "import os, threading, time\nshared = [1]\n"
        f"def write():\n    {until.format(str(go))}\n    shared.append('thread')\n"
        f"    open({str(gone)!r}, 'w').close()\n"
        "writer = threading.Thread(target=write); writer.start()"
    )
    cell = home.run(
        "%%gpu\nimport os, time\ntotal = shared[0]\nprint('busy', flush=True)\n"
        + until.format(str(gone)),
        when=printed("busy"),
        do=go.touch,
    )
    assert "shared was changed at home while a GPU cell used" in cell.shown(), cell.shown()
    assert "resolve shared home" in home.run("shared").error
    assert home.run("%gpu resolve shared home").ok
    assert home.run("writer.join()\nshared").result == "[1, 'thread']"
    assert home.run("%%gpu\nshared").result == "[1, 'thread']"


def test_a_front_end_finds_the_widgets_of_both_sides(home: HomeKernel) -> None:
    home.run("import ipywidgets\nhere = ipywidgets.Text(description='here')")
    home.run("%%gpu\nimport ipywidgets\nthere = ipywidgets.Text(description='there')")
    send(
        home, "comm_open", comm_id="control", target_name="jupyter.widget.control", data={},
        metadata={"version": "1.0.0"},
    )  # fmt: skip
    asked = send(home, "comm_msg", comm_id="control", data={"method": "request_states"})

    def answered() -> dict[str, Any] | None:
        while home.client.iopub_channel.msg_ready():
            message = home.client.get_iopub_msg(timeout=1)
            data = message["content"].get("data", {})
            if message["msg_type"] == "comm_msg" and data.get("method") == "update_states":
                found: dict[str, Any] = data["states"]
                return found
        return None

    states = wait_for(answered, what=f"the answer to {asked}")
    assert states is not None
    shown = {state["state"].get("description") for state in states.values()}
    assert {"here", "there"} <= shown


def test_the_front_end_can_close_a_widget(home: HomeKernel) -> None:
    cell = home.run("%%gpu\nimport ipywidgets\nbox = ipywidgets.Checkbox()\nbox")
    comm_id = opened(cell.messages, "CheckboxModel")
    send(home, "comm_close", comm_id=comm_id, data={})
    code = f"%%gpu\n{comm_id!r} in get_ipython().kernel.comm_manager.comms"
    wait_for(lambda: home.run(code).result == "False", what="the companion to close it")
    assert home.run(f"{comm_id!r} in get_ipython().kernel.comm_manager.comms").result == "False"


def test_widgets_close_with_a_note_when_the_lease_ends(fresh: HomeKernel) -> None:
    fresh.connect()
    comm_id = opened(fresh.run(BUTTON).messages, "ButtonModel")
    refused = fresh.run("%gpu return")
    assert "These cannot come home: button" in refused.error, "the loss is said beforehand"
    cell = fresh.run("%gpu return --force")
    assert cell.ok, cell.traceback
    states = [
        m["content"]["data"]["state"]
        for m in cell.messages
        if m["msg_type"] == "comm_msg" and m["content"]["comm_id"] == comm_id
    ]
    assert states[-1] == {"description": "GPU gone", "disabled": True}
    assert "The widgets of GPU cells are closed." in fresh.run("1").shown()


def test_a_finished_progress_bar_stays_when_the_lease_ends(fresh: HomeKernel) -> None:
    fresh.connect()
    fresh.run("%%gpu\nfrom tqdm.notebook import tqdm\nfor i in tqdm(range(3)): pass")
    cell = fresh.run("%gpu return --force")
    assert cell.kinds() == ["stream"], "nothing is closed or changed on the page"
    assert "widgets" not in fresh.run("1").shown()
