"""The last error, as IPython remembers it, whichever side raised it."""

import pytest

from tests.kernel.parts import HomeKernel

MINE = "import sys, traceback\nclass Mine(ValueError):\n    part = None"
RAISE = "def deep(x):\n    e = Mine('why')\n    e.part = [x]\n    raise e\ndeep(3)"
PRINTED = (
    "import io\nwith io.StringIO() as f:\n    traceback.print_last(file=f)\n    print(f.getvalue())"
)
ASK = (
    "print(sys.last_value.part, type(sys.last_value) is Mine is sys.last_type,"
    " [f.name for f in traceback.extract_tb(sys.last_traceback)][1:])"
)
SIDES = {"home": ("", "%%gpu\n"), "gpu": ("%%gpu\n", ""), "gpu alone": ("%%gpu\n", "%%gpu\n")}


@pytest.mark.parametrize("side", SIDES)
def test_it_is_what_was_raised_on_the_other_side(home: HomeKernel, side: str) -> None:
    here, there = SIDES[side]
    home.run(MINE)
    home.run(here + RAISE)
    assert home.run(there + ASK).text("stdout") == "[3] True ['<module>', 'deep']\n"
    printed = home.run(there + PRINTED).text("stdout")
    assert "    raise e\n" in printed
    assert "gpulease" not in printed
    assert printed.rstrip().endswith("Mine: why")


def test_what_was_in_its_frames_says_where_that_is(home: HomeKernel) -> None:
    home.run(MINE)
    home.run("%%gpu\n" + RAISE)
    cell = home.run("sys.last_traceback.tb_next.tb_frame.f_locals['x']")
    assert "stayed on the side where it was raised" in cell.error
    assert "%debug" in cell.error


def test_an_error_that_cannot_come_keeps_its_name_and_says_the_rest(home: HomeKernel) -> None:
    home.run(MINE)
    home.run("%%gpu\ne = Mine('why'); e.lock = memoryview(b'1'); e.n = 3\nraise e")
    assert home.run("sys.last_type.__name__, str(sys.last_value)").result == "('Mine', 'why')"
    assert "only its name and text could come" in home.run("sys.last_value.n").error


@pytest.mark.parametrize("how", ["block", "function"])
def test_a_home_cell_catches_what_its_gpu_part_raised(home: HomeKernel, how: str) -> None:
    cell = home.run(MINE + "\n" + RAISE.replace("\ndeep(3)", ""))
    assert cell.ok, cell.traceback
    call = "with gpu():\n        deep(3)" if how == "block" else "gpu.run(deep)(3)"
    cell = home.run(f"try:\n    {call}\nexcept Mine as found:\n    print(found.part)")
    assert cell.ok, cell.traceback
    assert cell.text("stdout") == "[3]\n"
    shown = home.run(call.replace("    deep", "deep")).traceback
    assert "raise e" in shown, "the companion's traceback"
    assert "perform" not in shown


NAMED = "try:\n    deep(3)\nexcept Mine as e:\n    problem = e"


@pytest.mark.parametrize("side", SIDES)
def test_one_that_has_a_name_is_that_very_value(home: HomeKernel, side: str) -> None:
    here, there = SIDES[side]
    home.run(MINE + "\n" + RAISE.replace("\ndeep(3)", ""))
    home.run(here + NAMED)
    home.run(here + "raise problem")
    assert home.run(there + "print(sys.last_value is problem)").text() == "True\n"
    said = home.run(there + "problem.part.append(4)").shown()
    said += home.run(f"{here}print(problem.part)").shown()
    assert "another object" not in said
    assert (
        home.run(here + "print(sys.last_value is problem, problem.part)").text() == "True [3, 4]\n"
    )


def test_nothing_is_said_of_what_only_frames_of_an_error_hold(home: HomeKernel) -> None:
    home.run(
        "class Owner:\n    def __init__(self): self.n = 0\n    def __hash__(self): return 1\n"
        "    def __eq__(self, other): return self is other\n"
        "    def fail(self): raise ValueError(self.n)\no = Owner(); held = {o: 1}"
    )
    home.run("try: o.fail()\nexcept ValueError as e: err = e")
    home.run("o.fail()")
    cell = home.run("%%gpu\no.n += 1")
    assert "another object" not in cell.shown() + home.run("o.n").shown()


READERS = "def last(): return sys.last_value.part\ndef printed(): traceback.print_last()"


@pytest.mark.parametrize("call", ["last()", "printed()", "getattr(sys, 'last_' + 'value')"])
def test_code_that_a_gpu_cell_calls_never_finds_an_older_one(home: HomeKernel, call: str) -> None:
    home.run(MINE + "\n" + RAISE.replace("\ndeep(3)", "") + "\n" + READERS)
    home.run("%%gpu\ndeep(1)")
    assert home.run("%%gpu\n" + call).ok, "both sides have the same one"
    home.run("deep(2)")
    for _ in range(2):
        assert "is in your notebook" in home.run(f"%%gpu\ntry: {call}\nfinally: pass").error
        home.run("deep(2)")
    assert home.run("%%gpu\nprint(sys.last_value.part); " + call).text().startswith("[2]\n")
    home.run("%%gpu\ndeep(4)")
    assert home.run("%%gpu\nprint(last())").text() == "[4]\n"


def test_an_error_that_home_caught_is_not_the_last_one_on_the_gpu(home: HomeKernel) -> None:
    home.run(MINE + "\n" + RAISE.replace("\ndeep(3)", "") + "\n" + READERS)
    home.run("for name in ('type', 'value', 'traceback'): vars(sys).pop('last_' + name, None)")
    home.run("try:\n    with gpu():\n        deep(3)\nexcept Mine: pass")
    assert "has no attribute 'last_value'" in home.run("%%gpu\nlast()").error
