"""What a notebook sets of its shell and its log holds on both sides, and shows no line of ours."""

from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel

pytestmark = pytest.mark.processes

SHELL = "IPython.core.interactiveshell.InteractiveShell.ast_node_interactivity = {!r}"
#: A cell that sets a switch, and one that shows what the shell does.
SWITCHES = {
    "by a class": (f"import IPython\n{SHELL.format('all')}", "1\n2"),
    "by the shell": ("get_ipython().ast_node_interactivity = 'none'", "1\n2"),
    "by a class, once more": (SHELL.format("last_expr_or_assign"), "1\nassigned = 2"),
    "by %config": ("%config InteractiveShell.ast_node_interactivity = 'last_expr'", "1\n2"),
    "pprint": ("%pprint", "list(range(99))"),
    "width": ("get_ipython().display_formatter.formatters['text/plain'].max_width = 20",
              "list(range(99))"),
    "xmode": ("%xmode Minimal", "1 / 0"),
    "a future statement": ("from __future__ import annotations",
                           "def f(x: unknown): pass\nf.__annotations__"),
}  # fmt: skip


def outputs(home: HomeKernel, text: str) -> list[str]:
    cell = home.run(text)
    shown = [m["content"] for m in cell.messages if m["msg_type"] == "execute_result"]
    lines = [content["data"]["text/plain"] for content in shown]
    return [*lines, str(len(cell.reply.get("traceback", ())))]


@pytest.mark.parametrize("set_on", ["", "%%gpu\n"], ids=["home", "gpu"])
def test_switches_of_the_shell_hold_on_both_sides(home: HomeKernel, set_on: str) -> None:
    home.run("import IPython")
    plain = {}
    for name, (setting, shows) in SWITCHES.items():
        line_magic = setting.startswith("%")
        assert home.run(setting if line_magic else set_on + setting).ok
        plain[name] = outputs(home, shows)
        assert outputs(home, f"%%gpu\n{shows}") == plain[name], name
    assert len({str(each) for each in plain.values()}) > 3, "they make a difference"
    for undo in ("%pprint", "%xmode Context", SHELL.format("last_expr")):
        home.run(undo)


def test_a_gpu_cell_sees_the_arguments_of_the_notebook(home: HomeKernel) -> None:
    look = "import argparse, sys; (sys.argv, argparse.ArgumentParser().prog)"
    plain = home.run(look).result
    assert "-f" in plain
    assert home.run(f"%%gpu\n{look}").result == plain


#: So large that it arrives before the cell that reads it, and not with the one that made it.
FRAME = "import numpy, pandas\ndf = pandas.DataFrame(numpy.zeros((200_000, 30)))"
SHOWN = "__import__('pandas').get_option('display.max_columns')"


@pytest.mark.parametrize("first", ["%%gpu\n", ""], ids=["gpu", "home"])
def test_pandas_is_imported_for_a_value_as_a_cell_would_import_it(
    tmp_path: Path, first: str
) -> None:
    kernel = HomeKernel(tmp_path / "fresh")
    try:
        kernel.connect()
        assert kernel.run(first + FRAME).ok
        other = "" if first else "%%gpu\n"
        assert kernel.run(f"{other}df.shape").result == "(200000, 30)"
        for place in ("%%gpu\n", ""):
            assert kernel.run(place + SHOWN).result == "20"
    finally:
        kernel.stop()


def test_no_line_of_our_own_log_is_shown_under_a_cell(home: HomeKernel) -> None:
    logs = (
        "import logging\nlogging.basicConfig(level=logging.DEBUG, force=True)\n"
        "for name in ('gpulease', 'gpulease.kernel', 'gpulease.transfer'):\n"
        "    logging.getLogger(name).error('a line of ours')\n"
        "logging.getLogger('mine').info('a line of mine')"
    )
    for cell in (home.run(logs), home.run(f"%%gpu\n{logs}"), home.run(logs)):
        assert cell.ok, cell.traceback
        assert "a line of mine" in cell.text("stderr")
        assert "a line of ours" not in cell.text("stderr")
