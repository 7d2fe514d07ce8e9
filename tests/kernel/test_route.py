"""Where a cell runs, from its text alone."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel.options import CellOptions, parse_duration, parse_options
from gpulease.kernel.route import Route, Side, route


@pytest.mark.parametrize(
    ("cell", "plain", "sticky"),
    [
        ("x = 1", Side.HOME, Side.AWAY),
        ("%%gpu\nx = 1", Side.AWAY, Side.AWAY),
        ("\n\n%%gpu --class A100\nx = 1", Side.AWAY, Side.AWAY),
        ("%%cpu\nx = 1", Side.HOME, Side.HOME),
        ("%%gpux\nx", Side.HOME, Side.AWAY),
        ("%gpu", Side.HOME, Side.HOME),
        ("%gpu off", Side.HOME, Side.HOME),
        ("# a comment\n%gpu status\n", Side.HOME, Side.HOME),
        ("%load_ext gpulease", Side.HOME, Side.HOME),
        ("%unload_ext gpulease", Side.HOME, Side.HOME),
        ("%history -n", Side.HOME, Side.HOME),
        ("%recall 3", Side.HOME, Side.HOME),
        ("%matplotlib inline", Side.HOME, Side.HOME),
        ("%pip install x", Side.HOME, Side.HOME),
        ("!ls", Side.HOME, Side.AWAY),
        ("%%bash\nls", Side.HOME, Side.AWAY),
        ("%%time\nf()", Side.HOME, Side.AWAY),
        ("x?", Side.HOME, Side.AWAY),
        ("%who", Side.HOME, Side.AWAY),
        ("", Side.HOME, Side.HOME),
        ("  \n", Side.HOME, Side.HOME),
    ],
)
def test_side(cell: str, plain: Side, sticky: Side) -> None:
    assert route(cell, sticky=False).side is plain
    assert route(cell, sticky=True).side is sticky


def test_home_magics_of_a_sticky_cell_run_first_at_home() -> None:
    way = route("%gpu config wait 1m\nx = 1", sticky=True)
    assert way.side is Side.AWAY
    assert way.first == ("%gpu config wait 1m",)
    assert way.body == "\nx = 1", "the other lines keep their numbers"


def test_magics_for_both_sides_are_named() -> None:
    way = route("%matplotlib inline\n%gpu on\n%env A=1\n%load_ext gpulease\nx = 1", sticky=False)
    assert way.both == ("%matplotlib inline", "%env A=1")
    assert route("%pip install x\ny = 1", sticky=True).installs == ("%pip install x",)


def test_a_change_of_directory_runs_once_and_travels() -> None:
    assert route("%%gpu\n%cd ..", sticky=False).both == ()
    assert route("%cd ..\nx = 1", sticky=True).both == ()
    assert route("%cd ..", sticky=True).side is Side.HOME


def test_gpuleases_own_lines_read_nothing() -> None:
    assert route("%gpu\n", sticky=False).reads == ""
    assert route("%gpu on\nx = y", sticky=False).reads == "\nx = y"
    assert route("%cd /tmp", sticky=False).reads == "%cd /tmp"


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize(
    "cell",
    [
        "s = '''\n%gpu off\n%cd /\n'''\nprint(s)",
        's = """\n%pip install x\n"""',
        "rest = (a\n% b\n)",
        "text = f'''\n%env A=1\n'''",
    ],
)
def test_what_only_looks_like_a_magic_is_text(cell: str, *, sticky: bool) -> None:
    assert route(cell, sticky=sticky) == Route(Side.AWAY if sticky else Side.HOME, cell)


def test_real_magics_beside_a_string_that_shows_one() -> None:
    cell = "!echo it's\n%gpu off\ns = '''\n%gpu off\n'''\n%cd /tmp\nx"
    way = route(cell, sticky=True)
    assert way.first == ("%gpu off",)
    assert way.both == ()
    assert way.body == "!echo it's\n\ns = '''\n%gpu off\n'''\n%cd /tmp\nx"


def test_magics_inside_a_cell_magic_are_its_own() -> None:
    assert route("%%writefile f.py\n%gpu off\n", sticky=True).first == ()


def test_gpuleases_own_lines_of_a_gpu_cell_run_at_home_only() -> None:
    way = route("%%gpu\n%gpu keep\nx", sticky=False)
    assert way.first == ("%gpu keep",)
    assert way.body.splitlines()[1:] == ["", "x"]


def test_line_numbers_of_a_gpu_cell_are_those_typed() -> None:
    body = route("\n%%gpu --wait 5m\na\nb", sticky=False).body
    assert body.splitlines()[2:] == ["a", "b"]
    assert route("%%gpu\n%%bash\nls", sticky=False).body == "%%bash\nls"


def test_errors_magics_are_marked() -> None:
    assert route("%tb", sticky=True).about_error
    assert route("%debug", sticky=False).about_error
    assert not route("x = 1", sticky=False).about_error


def test_options() -> None:
    line = "--class A100 --count=2 --for 1.5h --wait 20m --no-wait --else cpu --in-quota-only"
    assert parse_options(line) == CellOptions("A100", 2, 5400.0, 1200.0, True, True, True)
    assert parse_options("--project phys") == CellOptions(project="phys")
    assert parse_options("--count 4 --nodes=2") == CellOptions(count=4, nodes=2)
    assert parse_options("--at-least 40%") == CellOptions(at_least=40)
    assert parse_options("--at-least=40") == CellOptions(at_least=40)
    assert parse_options("--needs memory>=20GiB,ecc") == CellOptions(needs="memory>=20GiB,ecc")
    assert parse_options("--needs='cc>=8.0, ecc'") == CellOptions(needs="cc>=8.0, ecc")
    assert parse_options("") == CellOptions()


@pytest.mark.parametrize(
    "line",
    [
        "--at-least 0",
        "--at-least 101%",
        "--clas A",
        "--count 0",
        "--count x",
        "--wait soon",
        "--else gpu",
        "--class",
        "'",
        "5",
    ],
)
def test_bad_options_are_refused_with_the_usage(line: str) -> None:
    with pytest.raises(GPULeaseError) as refused:
        parse_options(line)
    assert refused.value.reason == "bad_option"
    assert "%%gpu" in refused.value.next_step


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2m", 120), ("1h", 3600), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
