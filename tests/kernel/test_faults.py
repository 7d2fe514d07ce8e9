"""What dies, and what is left: companions killed, supervisors killed, home kernels restarted."""

import os
import signal
import threading
import time

import pytest

from tests.helpers import process_is_gone, wait_for
from tests.kernel.parts import HomeKernel, printed

pytestmark = pytest.mark.processes


def companion_pid(home: HomeKernel) -> int:
    return int(home.run("%%gpu\nimport os; os.getpid()").result or 0)


def test_a_companion_killed_in_a_cell(home: HomeKernel) -> None:
    home.run("kept = [1, 2, 3]")
    home.run("%%gpu\nkept.append(4)\nmade = 'there'")
    assert home.run("kept, made").result == "([1, 2, 3, 4], 'there')"
    pid = companion_pid(home)
    cell = home.run(
        "%%gpu\nkept.append(5)\nmade = 'newer'\nprint('started', flush=True)\n"
        "import time; time.sleep(600)",
        when=printed("started"),
        do=lambda: os.kill(pid, signal.SIGKILL),
    )
    assert cell.error.startswith("GPULeaseError: The companion of this notebook died")
    assert "SIGKILL" in cell.error
    lost = home.run("made")
    assert not lost.ok
    said = f"{lost.shown()} {lost.text()} {lost.error}"
    assert "lost with the companion: kept, made. %gpu recover accepts those from before" in said
    assert said.count("was lost with the companion") == 1, "once is enough"
    count = cell.reply["execution_count"]
    assert f"The value that cell [{count}] gave made was lost" in lost.error
    assert companion_pid(home) != pid, "the next GPU cell gets a new companion"
    assert home.run("%gpu recover nothing_of_it").error.endswith("nothing_of_it is not lost.")
    cell = home.run("%gpu recover other kept")
    assert "accepted: kept.\nother is not lost." in cell.text(), "one that is not lost stops none"
    assert "accepted: made." in home.run("%gpu recover").text()
    assert home.run("kept, made").result == "([1, 2, 3, 4], 'there')"
    assert home.run("%gpu recover").ok


def test_a_companion_killed_between_cells(home: HomeKernel) -> None:
    home.run("%%gpu\nsafe = list(range(5))")
    assert home.run("safe").result == "[0, 1, 2, 3, 4]"
    pid = companion_pid(home)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: process_is_gone(pid), what="the companion's end")
    cell = wait_for(lambda: _noticed(home), what="home to notice")
    assert "died" in cell
    assert home.run("safe").result == "[0, 1, 2, 3, 4]"
    assert home.run("%%gpu\nsum(safe)").result == "10"


def _noticed(home: HomeKernel) -> str:
    return home.run("None").shown()


def test_the_supervisor_killed_in_a_cell(fresh: HomeKernel) -> None:
    fresh.connect()
    supervisor = int(fresh.run("%%gpu\nimport os; os.getppid()").result or 0)
    cell = fresh.run(
        "%%gpu\nprint('started', flush=True)\nimport time; time.sleep(600)",
        when=printed("started"),
        do=lambda: os.kill(supervisor, signal.SIGKILL),
    )
    assert cell.error.startswith("GPULeaseError"), cell.traceback
    assert fresh.run("%%gpu\n6 * 7").result == "42", "a new supervisor and a new companion"


def test_the_supervisor_killed_in_a_cell_is_noticed_in_seconds(fresh: HomeKernel) -> None:
    fresh.connect()
    supervisor = int(fresh.run("%%gpu\nimport os; os.getppid()").result or 0)
    killed: list[float] = []

    def kill() -> None:
        wait_for((fresh.directory / "held").exists, 60, "the cell")
        os.kill(supervisor, signal.SIGKILL)
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    # It holds the interpreter lock: nothing in the companion can tell of the death but its end.
    holding = "open('held', 'w').close(); import ctypes; ctypes.PyDLL(None).sleep(600)"
    cell = fresh.run(f"%%gpu\n{holding}")
    killer.join()
    assert "supervisor does not answer" in cell.error, cell.traceback
    assert time.monotonic() - killed[0] < 15, "not a time-out of a silent one"


def test_the_supervisor_killed_while_a_companion_is_opened(fresh: HomeKernel) -> None:
    fresh.run("%load_ext gpulease")
    fresh.run(SLOW_OPEN)
    started = time.monotonic()
    cell = fresh.run("%gpu connect local")
    assert "supervisor does not answer any more" in cell.error, cell.traceback
    assert time.monotonic() - started < 30, "sooner than opening a companion may take"
    fresh.run("control.ControlClient.call = real")
    assert fresh.run("%gpu connect local").ok
    assert fresh.run("%%gpu\n6 * 7").result == "42"


#: The supervisor of this kernel is killed when it is asked to open a companion.
SLOW_OPEN = """
import os, signal
from gpulease.companion import tree
from gpulease.kernel import control
real = control.ControlClient.call
def call(self, name, args, timeout):
    if name == "open":
        for pid in tree.descendants([os.getpid()], tree.process_table()):
            os.kill(pid, signal.SIGSTOP)  # what it starts cannot answer meanwhile
        future = self.start_call(name, args)
        for pid in tree.descendants([os.getpid()], tree.process_table()):
            os.kill(pid, signal.SIGKILL)
        self.start_call = lambda *_: future
    return real(self, name, args, timeout)
control.ControlClient.call = call
"""


def test_a_silent_companion_that_lives_is_not_called_dead(fresh: HomeKernel) -> None:
    fresh.connect()
    # Longer than any silence that counts as a death, in C code that keeps the interpreter lock.
    cell = fresh.run("%%gpu\nimport ctypes; ctypes.PyDLL(None).sleep(18); kept = 'alive'")
    assert cell.ok, cell.traceback
    assert fresh.run("kept").result == "'alive'"


def test_a_restarted_home_kernel_gets_a_new_companion(fresh: HomeKernel) -> None:
    fresh.connect()
    pid = companion_pid(fresh)
    fresh.run("%%gpu\nold = 1")
    fresh.manager.restart_kernel(now=False)
    fresh.client.wait_for_ready(timeout=60)
    wait_for(lambda: process_is_gone(pid), what="the old companion's end")
    fresh.connect()
    assert "NameError" in fresh.run("%%gpu\nold").error
    assert companion_pid(fresh) != pid


def test_a_killed_home_kernel_leaves_nothing_behind(fresh: HomeKernel) -> None:
    fresh.connect()
    pids = [companion_pid(fresh), int(fresh.run("%%gpu\nos.getppid()").result or 0)]
    os.kill(fresh.pid, signal.SIGKILL)
    for pid in pids:
        wait_for(lambda pid=pid: process_is_gone(pid), what=f"the end of process {pid}")


def test_return_gives_back_and_keeps_the_variables(fresh: HomeKernel) -> None:
    fresh.connect()
    pid = companion_pid(fresh)
    fresh.run("%%gpu\nvalues = {'a': [1]}")
    assert fresh.run("%gpu return").ok
    wait_for(lambda: process_is_gone(pid), what="the companion's end")
    assert fresh.run("values").result == "{'a': [1]}"
    refused = fresh.run("%%gpu\n1")
    assert "%gpu connect local" in refused.error, "no hub, and no companion any more"


def test_restart_brings_everything_home_and_imports_anew(fresh: HomeKernel) -> None:
    file = fresh.directory / "mylib.py"
    file.write_text("def f(): return 1\n")
    fresh.run("import sys; sys.dont_write_bytecode = True\nfrom mylib import f")
    fresh.connect()
    pid = companion_pid(fresh)
    assert fresh.run("%%gpu\nsys.dont_write_bytecode = True; values = {'a': [f()]}").ok
    file.write_text("def f(): return 2002\n")
    assert fresh.run("%%gpu\nf()").result == "1", "loaded nowhere anew"
    fresh.run("import importlib, mylib; importlib.reload(mylib); from mylib import f")
    assert fresh.run("%%gpu\nf()").result == "2002", "as it was loaded here"
    file.write_text("def f(): return 30003\n")
    fresh.run("importlib.reload(mylib); from mylib import f")
    file.write_text("def f(): return 4\n")  # the companion cannot load anew what was loaded here
    assert "%gpu restart" in fresh.run("%%gpu\nf()").error
    file.write_text("def f(): return 30003\n")
    assert "starts a new one" in fresh.run("%gpu restart").text()
    wait_for(lambda: process_is_gone(pid), what="the companion's end")
    assert fresh.run("%%gpu\nf(), values").result == "(30003, {'a': [1]})"
    assert companion_pid(fresh) != pid
    fresh.run("%%gpu\nlock = __import__('threading').Lock(); lock.acquire()")
    assert "%gpu restart --force" in fresh.run("%gpu restart").traceback
    assert "could not come: lock" in fresh.run("%gpu restart --force").text()
    assert "Nothing of this notebook" in fresh.run("%gpu restart").error
    assert fresh.run("%%gpu\nvalues").result == "{'a': [1]}"


def test_autoreload_loads_what_was_edited_on_both_sides(fresh: HomeKernel) -> None:
    file = fresh.directory / "mylib.py"
    file.write_text("def f(): return 1\n")
    fresh.run("import sys; sys.dont_write_bytecode = True\n%load_ext autoreload\n%autoreload 2")
    fresh.run("import mylib; from mylib import f; fs = [f]")
    fresh.connect()
    both = "mylib.f(), f(), fs[0]()"
    assert fresh.run(f"%%gpu\n{both}").result == "(1, 1, 1)"
    file.write_text("def f(): return 2002\n")
    assert fresh.run(f"%%gpu\n{both}").result == "(2002, 2002, 2002)"
    assert fresh.run(both).result == "(2002, 2002, 2002)"
    file.write_text("def f(): return 30003\n")
    assert fresh.run(both).result == "(30003, 30003, 30003)"
    assert fresh.run(f"%%gpu\n{both}").result == "(30003, 30003, 30003)"


@pytest.mark.parametrize("first", ["", "%%gpu\n"], ids=["home", "gpu"])
def test_what_a_module_has_that_autoreload_loads_anew_travels(
    fresh: HomeKernel, first: str
) -> None:
    text = "class Counter:\n    made = {n}\n    def __init__(self): Counter.made += 1\n"
    other = "" if first else "%%gpu\n"
    file = fresh.directory / "mylib.py"
    file.write_text(text.format(n=0))
    fresh.run("import sys; sys.dont_write_bytecode = True\n%load_ext autoreload\n%autoreload 2")
    fresh.run("import mylib; from mylib import Counter")
    fresh.connect()
    assert fresh.run("%%gpu\nc = Counter(); c.made").result == "1"
    file.write_text(text.format(n=100) + "\n")
    assert fresh.run(f"{first}d = Counter(); c.made, d.made").result == "(101, 101)"
    assert fresh.run(f"{other}e = Counter(); c.made, Counter.made").result == "(102, 102)"
    fresh.run("%gpu restart")
    assert fresh.run("%%gpu\ne = Counter(); c.made, mylib.Counter.made").result == "(103, 103)"


def test_a_connection_file_that_others_can_read_is_refused(fresh: HomeKernel) -> None:
    fresh.run("%load_ext gpulease")
    fresh.run("open('c.json', 'w').write('{}'); import os; os.chmod('c.json', 0o644)")
    assert "chmod 600" in fresh.run("%gpu connect c.json").error
    fresh.run("os.chmod('c.json', 0o600)")
    assert "not a connection file" in fresh.run("%gpu connect c.json").error
    assert "cannot be used" in fresh.run("%gpu connect missing.json").error


def test_mistyped_commands_say_what_can_be_typed(home: HomeKernel) -> None:
    for line in ("%gpu onn", "%gpu fetch", "%gpu resolve x", "%gpu config colour red", "%gpu on x"):
        cell = home.run(line)
        assert cell.error.startswith("GPULeaseError"), line
        assert "%gpu help lists the commands." in cell.error, line
    assert "Did you mean %gpu on?" in home.run("%gpu onn").error
    assert "Did you mean --wait?" in home.run("%%gpu --wiat 5m\n1").error


def test_help(home: HomeKernel) -> None:
    def shown(line: str) -> str:
        return str(home.run(line).reply["payload"][0]["data"]["text/plain"])

    assert "%gpu return [--force]" in home.run("%gpu help").text()
    assert "%gpu return [--force]" in shown("%gpu?")
    assert "--else cpu" in shown("%%gpu?")
