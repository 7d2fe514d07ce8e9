"""Tracebacks and sources of functions, on the side where they were not defined."""

from tests.kernel.parts import HomeKernel


def test_a_home_function_fails_away_with_its_own_cell(home: HomeKernel) -> None:
    count = home.run("def inverse(x):\n    return 1 / x").reply["execution_count"]
    cell = home.run("%%gpu\ninverse(0)")
    assert f"Cell In[{count}], line 2, in inverse(x)" in cell.traceback
    assert "return 1 / x" in cell.traceback
    code = "%%gpu\nimport inspect\ninspect.getsource(inverse)"
    assert home.run(code).result == repr("def inverse(x):\n    return 1 / x\n")


def test_a_gpu_cells_function_fails_at_home_with_its_own_cell(home: HomeKernel) -> None:
    count = home.run("%%gpu\ndef half(x):\n    return x / 'two'").reply["execution_count"]
    cell = home.run("half(1)")
    assert f"Cell In[{count}], line 3, in half(x)" in cell.traceback
    assert "return x / 'two'" in cell.traceback


def test_so_does_one_of_an_earlier_companion_with_the_next(home: HomeKernel) -> None:
    count = home.run("%%gpu\ndef half(x):\n    return x / 'two'").reply["execution_count"]
    home.run("%gpu restart")
    cell = home.run("%%gpu\nimport inspect\nprint(inspect.getsource(half))\nhalf(1)")
    assert "def half(x):\n    return x / 'two'" in cell.text()
    assert f"Cell In[{count}], line 3, in half(x)" in cell.traceback


def test_tb_and_debug_ask_the_side_of_the_last_error(home: HomeKernel) -> None:
    home.run("%%gpu\ndef deep():\n    inside = 5\n    raise OSError('deep')\ndeep()")
    for _ in range(2):
        assert shown_error(home) == "OSError"
    cell = home.run("%debug", answers=("p inside * 100", "q"))
    assert "500" in cell.text(), (cell.text(), cell.traceback)
    home.run("1 / 0")
    assert shown_error(home) == "ZeroDivisionError"


def shown_error(home: HomeKernel) -> str:
    """What ``%tb`` shows; it is no error itself."""
    cell = home.run("%tb")
    assert cell.ok
    return next(m["content"]["ename"] for m in cell.messages if m["msg_type"] == "error")


def test_settings_made_by_magics_hold_on_both_sides(home: HomeKernel) -> None:
    home.run("%config InteractiveShell.ast_node_interactivity = 'all'")
    cell = home.run("%%gpu\n1\n2")
    assert cell.kinds() == ["execute_result", "execute_result"]
    home.run("%%gpu\n%config InteractiveShell.ast_node_interactivity = 'last_expr'")
    assert home.run("3\n4").kinds() == ["execute_result"]
    home.run("%%gpu\n%cd /")
    assert home.run("import os; os.getcwd()").result == "'/'"
    home.run("%cd /usr/share/doc")
    home.run("%%gpu\n%cd ..")
    assert home.run("os.getcwd()").result == "'/usr/share'"
    home.run("%cd ..")
    assert home.run("%%gpu\nos.getcwd()").result == "'/usr'"


def test_threads_at_home_are_named_once_under_a_gpu_cell(home: HomeKernel) -> None:
    home.run(
        "import threading\nstop = threading.Event()\n"
        "watcher = threading.Thread(target=stop.wait, name='watcher')\nwatcher.start()"
    )
    shown = home.run("%%gpu\n1").shown()
    assert shown.count("watcher") == 1
    home.run("stop.set(); watcher.join(); del watcher, stop")
