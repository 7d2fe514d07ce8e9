"""What holds a standard stream of the notebook writes under the cell that runs, on either side."""

import pytest

from tests.kernel.parts import HomeKernel

HOLDERS = {
    "a name": ("out = sys.stdout", "print('x', file=out)"),
    "an instance": (
        "class Log:\n    def __init__(self): self.to = [sys.stdout, sys.stderr]\nlog = Log()",
        "log.to[0].write('x\\n')",
    ),
}  # fmt: skip


@pytest.mark.parametrize("made", ["home", "gpu"])
@pytest.mark.parametrize("held", HOLDERS)
def test_it_writes_where_the_cell_runs(home: HomeKernel, held: str, made: str) -> None:
    make, use = HOLDERS[held]
    here, there = ("", "%%gpu\n") if made == "home" else ("%%gpu\n", "")
    home.run(f"{here}import sys\n{make}")
    for side in (here, there, here):
        cell = home.run(side + use)
        assert cell.ok, cell.traceback
        assert cell.text("stdout") == "x\n"


def test_a_handler_stays_and_its_logger_has_one_on_each_side(home: HomeKernel) -> None:
    home.run("import logging, sys\nhandler = logging.StreamHandler(sys.stdout)")
    home.run("logger = logging.getLogger('streams'); logger.addHandler(handler)")
    for side in ("", "%%gpu\n", ""):
        assert home.run(side + "logger.warning('x')").text("stdout") == "x\n"
    assert "a handler of logging" in home.run("%%gpu\nlogger.removeHandler(handler)").error
    home.run("logger.removeHandler(handler)")
    assert home.run("%%gpu\nprint(logger.handlers)").text("stdout") == "[]\n"
