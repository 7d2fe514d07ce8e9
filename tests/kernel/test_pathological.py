"""Cells that people do type, away: as in a plain kernel, or refused in a sentence."""

import json
import time
from pathlib import Path

import pytest
import zmq

from tests.kernel.parts import HomeKernel


def test_quit_in_a_gpu_cell_leaves_the_companion(home: HomeKernel) -> None:
    pid = home.run("%%gpu\nimport os; os.getpid()").result
    cell = home.run("%%gpu\nquit()")
    assert "ends nothing" in cell.text()
    assert home.run("%%gpu\nos.getpid()").result == pid


def test_a_companion_that_is_gone_is_replaced_in_the_next_cell(home: HomeKernel) -> None:
    home.run("%%gpu\nvalue = 1")
    home.run("value")
    # Its transfer side stops alone: what is left of it answers, but is of no use.
    home.run(
        "%%gpu\nfrom gpulease.companion import kernel\nimport gc\n"
        "[o.close() for o in gc.get_objects() if type(o).__name__ == 'AwaySide']"
    )
    cells = [home.run("%%gpu\nvalue + 1") for _ in range(3)]
    assert cells[-1].result == "2", cells[-1].traceback


def test_a_comment_behind_the_magic(home: HomeKernel) -> None:
    assert home.run("%%gpu --wait 5m  # my GPU\n3").result == "3"


def test_an_install_in_one_environment_is_done_once(home: HomeKernel) -> None:
    cell = home.run("%%gpu\n%pip --version\n'after'")
    assert cell.text().count("pip 2") == 1, cell.text()
    assert cell.result == "'after'"
    assert home.run("%%gpu\n%pip --version").text().count("pip 2") == 1


def test_top_level_await_away_and_else_cpu(home: HomeKernel) -> None:
    source = "import asyncio\nawait asyncio.sleep(0)\n5"
    assert home.run(f"%%gpu\n{source}").result == "5"
    assert home.run(f"%%gpu --else cpu\n{source}").result == "5"


def test_magics_around_and_inside(home: HomeKernel) -> None:
    assert "Wall time" in home.run("%%gpu\n%%time\nfirst = 1").text()
    assert "Wall time" in home.run("%%time\n%%gpu\n2").text()
    assert "Wall time" in home.run("%%gpu\n%time second = 2").text()
    assert home.run("first, second").result == "(1, 2)"
    assert "hello" in home.run("%%gpu\n!echo hello").text()
    assert home.run("%%gpu\nwords = !echo here").ok
    assert home.run("words").result == "['here']"
    home.run("%%gpu\n%env QA_NAME=1")
    assert home.run("import os; os.environ['QA_NAME']").result == "'1'"
    home.run("%%gpu\n%load_ext autoreload\n%autoreload 2")
    assert "autoreload" in str(home.run("get_ipython().extension_manager.loaded").result)
    assert "%%gpu" in home.run("%%gpuu\n1").text("stderr")


def test_text_in_a_string_is_no_magic(home: HomeKernel) -> None:
    cell = home.run("%%gpu\ntext = '''\n%gpu off\n%cd /\n'''\nprint(text)")
    assert cell.text() == "\n%gpu off\n%cd /\n\n"
    assert home.run("import os; os.getcwd()").result != "'/'"


def test_rich_output_and_figures(home: HomeKernel) -> None:
    html = "class P:\n    def _repr_html_(self): return '<b>rich</b>'\nP()"
    cell = home.run(f"%%gpu\n{html}")
    assert cell.messages[-1]["content"]["data"]["text/html"] == "<b>rich</b>"
    cell = home.run("%%gpu\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert "image/png" in cell.messages[-1]["content"]["data"]
    assert home.run("%%gpu\nplt.show()").kinds() == [], "nothing drawn, nothing shown"
    cell = home.run("%%gpu\nplt.plot([1, 2]);")
    assert cell.kinds() == ["display_data"], "as a plain kernel shows it at the cell's end"


def test_what_a_gpu_cell_captured_is_home_afterwards(home: HomeKernel) -> None:
    assert home.run("%%gpu\n%%capture seen\nprint('x')").kinds() == []
    assert home.run("%%gpu\nseen.stdout").result == r"'x\n'"
    assert home.run("seen.stdout").result == r"'x\n'"
    assert home.run("%%capture here\n%%gpu\nprint('y')").ok
    assert home.run("here.stdout").result == r"'y\n'", "the other way round it is home's"
    home.run("%%gpu\ndel seen")


def test_a_table_that_a_gpu_cell_showed_is_a_table_at_home(home: HomeKernel) -> None:
    count = home.run("%%gpu\nimport pandas as pd\npd.DataFrame({'a': [1, 2]})").reply[
        "execution_count"
    ]
    shown = home.run(f"Out[{count}]")
    assert "<table" in shown.messages[-1]["content"]["data"]["text/html"]
    assert home.run(f"int(Out[{count}].a.sum())").result == "3"
    assert "%%gpu" in str(home.run(f"In[{count}]").result)


@pytest.mark.parametrize("code", ["%%gpu", "%%gpu\n\n\n", "%%gpu\n# only this\n"])
def test_empty_cells(home: HomeKernel, code: str) -> None:
    cell = home.run(code)
    assert cell.ok
    assert cell.kinds() == []


def test_an_unfinished_cell(home: HomeKernel) -> None:
    assert home.run("%%gpu\nx = (\n").error.startswith("SyntaxError")


def test_an_address_where_nobody_answers_is_said_soon(fresh: HomeKernel, tmp_path: Path) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    file = tmp_path / "stale.json"
    view = {
        "lease_id": "x", "address": "tcp://127.0.0.1:9", "server_key": public, "protocol": "1.0",
        "simulated": True, "gpu_class": "s", "devices": [],
        "client_public_key": public, "client_secret_key": secret,
    }  # fmt: skip
    file.write_text(json.dumps(view))
    file.chmod(0o600)
    fresh.run("%load_ext gpulease")
    started = time.monotonic()
    cell = fresh.run(f"%gpu connect {file}")
    assert "Nobody answered at tcp://127.0.0.1:9 within 5 s" in cell.error
    assert secret not in cell.traceback
    assert time.monotonic() - started < 20
    assert fresh.run("%gpu connect local").ok, "nothing of the failure stays"


def test_what_a_thread_made_comes_home_without_the_thread(home: HomeKernel) -> None:
    home.run("import threading")
    cell = home.run(
        "%%gpu\nmade = []\nworker = threading.Thread(target=lambda: made.append(1))\n"
        "worker.start(); worker.join()"
    )
    assert cell.ok, cell.traceback
    for _ in range(2):
        assert home.run("made").result == "[1]"
        assert home.run("%%gpu\nmade").result == "[1]"
    assert "it holds a thread" in home.run("worker").error
    home.run("%%gpu\ndel worker")
