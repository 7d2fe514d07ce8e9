"""Widgets of GPU cells: alive in the notebook, their callbacks on the GPU."""

import re
from pathlib import Path
from typing import Any

import pytest

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
        "%%gpu\nimport os, time\nshared.append('gpu')\nprint('busy', flush=True)\n"
        + until.format(str(gone)),
        when=printed("busy"),
        do=go.touch,
    )
    assert "shared was changed in your notebook and" in cell.shown(), cell.shown()
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


SLIDER = (
    "%%gpu\nimport ipywidgets\nmoved = []\n"
    "def seen(change): moved.append(change['new'])\n"
    "slider = ipywidgets.IntSlider(value=3, description='rate')\n"
    "slider.observe(seen, names='value')\nslider"
)


def move(home: HomeKernel, comm_id: str, value: int) -> None:
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    send(home, "comm_msg", comm_id=comm_id, data=data)


def test_a_widget_that_no_variable_holds_is_disabled_when_the_lease_ends(
    fresh: HomeKernel,
) -> None:
    fresh.connect()
    comm_id = opened(
        fresh.run("%%gpu\nimport ipywidgets\ndisplay(ipywidgets.Button())").messages, "ButtonModel"
    )
    cell = fresh.run("%gpu return")
    assert cell.ok, cell.traceback
    states = [
        m["content"]["data"]["state"]
        for m in cell.messages
        if m["msg_type"] == "comm_msg" and m["content"]["comm_id"] == comm_id
    ]
    assert states[-1]["disabled"] is True, "what it shows stays"
    assert "that no variable holds are disabled" in fresh.run("1").shown()


def test_a_widget_goes_on_in_the_notebook_when_the_lease_ends(fresh: HomeKernel) -> None:
    fresh.connect()
    comm_id = opened(fresh.run(SLIDER).messages, "IntSliderModel")
    assert fresh.run("slider.value, slider.description").result == "(3, 'rate')"
    cell = fresh.run("%gpu return")
    assert cell.ok, cell.traceback
    assert cell.kinds() == ["stream"], "nothing is closed or changed on the page"
    assert "disabled" not in fresh.run("1").shown()
    move(fresh, comm_id, 9)
    wait_for(lambda: fresh.run("slider.value, moved").result == "(9, [9])", what="the new value")
    set_at_home = fresh.run("slider.value = 4")
    assert set_at_home.messages[-1]["content"]["data"]["state"] == {"value": 4}
    assert fresh.run("%gpu connect local").ok
    assert fresh.run("%%gpu\nslider.value += 1\nslider.value, moved").result == "(5, [9, 4, 5])"
    assert fresh.run("slider.value, moved").result == "(5, [9, 4, 5])"
    move(fresh, comm_id, 20)
    wait_for(lambda: fresh.run("%%gpu\nslider.value").result == "20", what="the value on the GPU")


def test_the_page_the_notebook_and_the_gpu_agree_on_a_value(home: HomeKernel) -> None:
    comm_id = opened(home.run(SLIDER).messages, "IntSliderModel")
    home.run("moved.append('here')")  # the notebook has the newest of everything
    move(home, comm_id, 7)
    assert home.run("slider.value, moved").result == "(7, ['here', 7])"
    cell = home.run("slider.value = 8")
    assert cell.messages[-1]["content"]["comm_id"] == comm_id
    cell = home.run("%%gpu\nslider.value, moved")
    assert cell.result == "(8, ['here', 7, 8])", cell.traceback
    cell = home.run("%%gpu\nslider.value = 9")
    assert [m["content"]["data"]["state"] for m in cell.messages] == [{"value": 9}]
    assert home.run("slider.value, slider is slider.__class__._active_widgets[slider.model_id]")


def test_a_widget_of_the_notebook_is_used_in_a_gpu_cell(home: HomeKernel) -> None:
    made = home.run("import ipywidgets\nlabel = ipywidgets.Label('start')\nlabel")
    comm_id = opened(made.messages, "LabelModel")
    cell = home.run("%%gpu\nlabel.value += ' on the GPU'")
    assert cell.ok, cell.traceback
    told = [m["content"] for m in cell.messages if m["msg_type"] == "comm_msg"]
    assert [(m["comm_id"], m["data"]["state"]["value"]) for m in told] == [
        (comm_id, "start on the GPU")
    ]
    assert home.run("label.value").result == "'start on the GPU'"
    closed = home.run("%%gpu\nlabel.close()")
    after = home.run("label.comm is None")
    assert after.result == "True", "closed is closed on both sides"
    told = [m["content"]["comm_id"] for m in closed.messages + after.messages
            if m["msg_type"] == "comm_close"]  # fmt: skip
    assert told == [comm_id], "and the page is told once"


SHOWN = {
    "nested": (
        "pair = ipywidgets.VBox([ipywidgets.Text('a'), ipywidgets.Dropdown(options=['x', 'y'])])",
        "pair.children[0].value, pair.children[1].value",
        "('a', 'x')",
    ),
    "linked": (
        "one = ipywidgets.FloatSlider(); two = ipywidgets.FloatText()\n"
        "tie = ipywidgets.link((one, 'value'), (two, 'value'))",
        "(setattr(one, 'value', 2.0), two.value)[1]",
        "2.0",
    ),
    "interactive": (
        "twice = ipywidgets.interactive(lambda a: a * 2, a=(0, 5))",
        "twice.children[0].value, twice.children[0].max",
        "(2, 5)",
    ),
    "interact": (
        "@ipywidgets.interact(x=(0, 10))\ndef shown(x=4): return x",
        "shown(3), shown.widget.kwargs",
        "(3, {'x': 4})",
    ),
    "output": (
        "log = ipywidgets.Output()\nwith log: print('in it')",
        "type(log).__name__",
        "'Output'",
    ),
    "picture": ("picture = ipywidgets.Image(value=b'png')", "bytes(picture.value)", "b'png'"),
    "own class": (
        "class Mine(ipywidgets.IntText):\n    def double(self): return 2 * self.value\n"
        "mine = Mine(value=4)",
        "mine.double()",
        "8",
    ),
}


@pytest.mark.parametrize(("make", "read", "value"), SHOWN.values(), ids=SHOWN)
def test_what_a_notebook_shows_comes_home(
    home: HomeKernel, make: str, read: str, value: str
) -> None:
    cell = home.run(f"%%gpu\nimport ipywidgets\n{make}")
    assert cell.ok, cell.traceback
    assert home.run(read).result == value
    assert home.run(f"%%gpu\n{read}").result == value


BARS = {
    "notebook": "from tqdm.notebook import tqdm",
    "text": "from tqdm import tqdm",
    "auto": "from tqdm.auto import tqdm",
}


@pytest.mark.parametrize("which", BARS)
def test_a_progress_bar_counts_on_either_side(home: HomeKernel, which: str) -> None:
    cell = home.run(
        f"%%gpu\n{BARS[which]}\nfor _ in (done := tqdm(x for x in range(3))): pass\n"
        "open_bar = tqdm(total=9); open_bar.update(2)"
    )
    assert cell.ok, cell.traceback
    assert home.run("done.n, done.disable, open_bar.n").result == "(3, True, 2)"
    assert home.run("shown = open_bar.update(3); open_bar.refresh(); open_bar.n").result == "5"
    assert home.run("%%gpu\nopen_bar.update(1)\nopen_bar.n").result == "6"
    assert home.run("open_bar.close(); open_bar.n").result == "6"


@pytest.mark.parametrize("which", BARS)
def test_a_finished_progress_bar_stays_when_the_lease_ends(fresh: HomeKernel, which: str) -> None:
    fresh.connect()
    fresh.run(f"%%gpu\n{BARS[which]}\nfor i in (bar := tqdm(range(3))): pass")
    cell = fresh.run("%gpu return")
    assert cell.kinds() == ["stream"], "nothing is closed or changed on the page"
    assert "disabled" not in fresh.run("1").shown()
    assert fresh.run("bar.n, i").result == "(3, 2)"


def test_what_is_lost_names_the_cell_that_made_it_and_no_import(fresh: HomeKernel) -> None:
    fresh.connect()
    made = fresh.run("%%gpu\nstuck = (number for number in range(3))")
    assert made.ok
    number = int(fresh.run("len(In) - 2").result or "")
    fresh.run("%%gpu\nnext(stuck)")
    dying = (
        "%%gpu\nimport os, json as notes\nfrom IPython.display import display\n"
        "display(1)\nos.kill(os.getpid(), 9)"
    )
    shown = fresh.run(dying).shown() + fresh.run("1").shown()
    assert "Lost with the companion: stuck." in shown
    assert f"cell [{number}] gave stuck" in fresh.run("stuck").error


def test_the_size_of_shared_objects_is_shown_once(home: HomeKernel) -> None:
    home.run("%%gpu\nimport numpy\nalpha = numpy.zeros(10**5)\nbeta = [alpha]")
    home.run("alpha.nbytes")
    table = home.run("%gpu variables").text()
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
    assert re.fullmatch(r"800\.\d kB", " ".join(rows["alpha"][1:3])), table
    assert rows["beta"][1:3] == ["in", "alpha"], table
