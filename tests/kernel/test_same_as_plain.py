"""A GPU cell and the same cell in a plain kernel, compared message by message."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpulease.verify import compare
from tests.kernel.parts import Cell, HomeKernel

CELLS = {
    "streams": "import sys\nprint('a')\nprint('e', file=sys.stderr)",
    "long stream": "for i in range(300): print(i, flush=i % 50 == 0)",
    "result": "21 * 2",
    "semicolon": "21 * 2;",
    "none": "None",
    "underscore": "_",
    "underscores": "5\n_ + 1",
    "rich": "from IPython.display import HTML, display\n"
    "display(HTML('<b>x</b>'), metadata={'a': 1})",
    "rich result": "HTML('<i>y</i>')",
    "bytes as image": "from IPython.display import Image\n"
    "Image(data=bytes.fromhex('89504e470d0a1a0a'), format='png')",
    "display id": "h = display('one', display_id='mine')\nh.update('two')",
    "update earlier": "h.update('three')",
    "clear": "from IPython.display import clear_output\nprint('gone')\nclear_output(wait=True)\n"
    "print('kept')",
    "figure": "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);",
    "capture": "%%capture caught\nprint('inside'); display('rich')",
    "captured": "caught.stdout, len(caught.outputs)",
    "redirect": "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as text:\n"
    "    print('hidden')\ntext.getvalue()",
    "error": "def inner():\n    return 1 / 0\n\ninner()",
    "error in the middle": "print('before')\n[][1]\nprint('after')",
    "custom error": "class MyError(Exception): pass\nraise MyError('mine')",
    "chained": "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e",
    "syntax": "x = = 1",
    "indentation": "if True:\nx = 1",
    "tokens": "'abc",
    "unknown name": "no_such_name",
    "exit": "import sys\nsys.exit(3)",
    "unknown magic": "%no_such_magic",
    "unknown cell magic": "%%no_such_magic\nx",
    "cell magic after text": "import sys\nprint('said', file=sys.stderr)\n"
    "get_ipython().run_cell_magic('no_such_magic', '', 'x')",
    "a complaint shown": "shell = get_ipython()\n"
    "try:\n    shell.run_line_magic('no_such_magic', '')\n"
    "except Exception:\n    shell.showtraceback()\nprint('goes on')",
    "a complaint kept": "with contextlib.redirect_stderr(io.StringIO()) as text:\n"
    "    shell.run_cell('%no_such_magic')\ntext.getvalue()",
    "an error of that name": "class UsageError(Exception): pass\nraise UsageError('not a magic')",
    "shell": "!echo from the shell",
    "shell to name": "lines = !echo one; echo two\nlines",
    "time": "%%time\npass",
    "async": "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'",
    "background output": "print('first'); print('second', end='')",
    "unicode": "print('ünïcödé ✓'); 'ü'",
    "exception group": "raise ExceptionGroup('many', [ValueError('a'), TypeError('b')])",
    "shown error": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()",
    "warning": "import warnings\nwarnings.warn('careful')",
    "tqdm text": "from tqdm import tqdm\n"
    "for _i in tqdm(range(2), bar_format='{n}', mininterval=0): pass",
    "widget": "import ipywidgets\nipywidgets.IntSlider(value=3)",
    "tqdm bar": "from tqdm.notebook import tqdm as bar\n"
    "for _i in bar(range(2), mininterval=0): pass",
    "help": "int?",
    "load": "get_ipython().set_next_input('next')",
    "the shell": "shell = get_ipython()",
    "the shell again": "shell is get_ipython(), shell.user_ns is globals()",
    "no stdin": "input('?')",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HomeKernel, HomeKernel]]:
    """A plain kernel and one whose cells go away, at the same execution count."""
    kernels: list[HomeKernel] = []
    try:
        for name in ("plain", "away"):
            kernel = HomeKernel(tmp_path_factory.mktemp(name))
            kernels.append(kernel)  # at once: it is stopped also when the next does not start
        plain, away = kernels
        away.connect(sticky=True)
        for _ in range(3):
            plain.run("pass")
        yield plain, away
    finally:
        for kernel in kernels:
            kernel.stop()


def test_every_cell_shows_the_same(pair: tuple[HomeKernel, HomeKernel]) -> None:
    plain, away = pair
    differing = {}
    for name, code in CELLS.items():
        expected, found = plain.run(code), away.run(code)
        if seen(expected) != seen(found):
            differing[name] = (seen(expected), seen(found))
    assert not differing, "\n".join(
        f"{name}\n  plain {two[0]}\n  away  {two[1]}" for name, two in differing.items()
    )


def test_the_cells_really_ran_away(pair: tuple[HomeKernel, HomeKernel]) -> None:
    _, away = pair
    pid = int(away.run("import os; os.getpid()").result or 0)
    assert pid not in (0, away.pid)
    assert int(away.run("%%cpu\nimport os; os.getpid()").result or 0) == away.pid


def test_input_and_getpass(pair: tuple[HomeKernel, HomeKernel]) -> None:
    code = "import getpass\n(input('name? '), getpass.getpass('secret? '))"
    expected, found = (kernel.run(code, answers=("me", "hush")) for kernel in pair)
    assert expected.asked == found.asked
    assert [a["password"] for a in found.asked] == [False, True]
    assert found.result == expected.result == "('me', 'hush')"


def test_end_of_input(pair: tuple[HomeKernel, HomeKernel]) -> None:
    for kernel in pair:
        assert kernel.run("input()", answers=("\x04",)).error.startswith("EOFError")


def test_history_holds_what_was_typed(pair: tuple[HomeKernel, HomeKernel]) -> None:
    plain, away = pair
    for kernel in pair:
        kernel.run("marker = 'typed'")
        kernel.run("!true")
    ask = {"hist_access_type": "tail", "n": 2}
    typed = [[row[2] for row in kernel.ask("history", **ask)["history"]] for kernel in pair]
    assert typed[0] == typed[1] == ["marker = 'typed'", "!true"]
    code = "%%cpu\nIn[-3:-1], _ih[-2]"
    plain_code = "In[-3:-1], _ih[-2]"
    assert away.run(code).result == plain.run(plain_code).result


def test_gpu_cells_are_kept_as_typed(home: HomeKernel) -> None:
    home.run("%%gpu\n5 + 5")
    assert home.run("In[-2], _i").result == repr(("%%gpu\n5 + 5", "%%gpu\n5 + 5"))


def test_inputs_and_magics_are_the_notebooks_own(
    pair: tuple[HomeKernel, HomeKernel],
) -> None:
    plain, away = pair
    define = (
        "from IPython.core.magic import register_cell_magic, register_line_magic\nfactor = 3\n"
        "@register_cell_magic\ndef thrice(line, cell): return cell.strip() * factor\n"
        "@register_line_magic\ndef shout(line): return line.upper() * factor"
    )
    away.run(f"%%cpu\n{define}")
    plain.run(define)
    cells = (
        "1 + 1", "In[-2], _i", "_ii, _ih[-2] == _i", "%%thrice\nab", "x = %shout hi", "x",
        "%precision 3", "1 / 3", "%precision", "1 / 3",
    )  # fmt: skip
    for code in cells:
        assert away.run(code).result == plain.run(code).result, code


def test_magics_that_a_gpu_cell_defines_are_the_notebooks_own(
    pair: tuple[HomeKernel, HomeKernel],
) -> None:
    plain, away = pair
    cells = (
        "from IPython.core.magic import register_cell_magic, register_line_magic\nless = 2\n"
        "@register_cell_magic\ndef twice(line, cell): return cell.strip() * less\n"
        "@register_line_magic\ndef hush(line): return line.lower() * less",
        "%%cpu\n%%twice\nab", "%%cpu\ny = %hush HI\ny", "%hush HO",
        "%%cpu\n@register_line_magic\ndef hush(line): return line.lower()",
        "%hush HA", "%%cpu\n%hush HA",
        "@register_line_magic\ndef hush(line): return line", "%%cpu\n%hush HA",
        "%%cpu\nless = 3", "%%twice\nab", "%%cpu\n%%twice\nab",
    )  # fmt: skip
    for code in cells:
        found = away.run(code).result
        assert found == plain.run(code.removeprefix("%%cpu\n")).result, code


def order(cell: Cell) -> list[Any]:
    """What a cell published, in order; one stream's text in a row is one."""
    found: list[Any] = []
    for message in cell.messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and found and found[-1][0] == content["name"]:
            found[-1][1] += content["text"]
        elif kind == "stream":
            found.append([content["name"], content["text"]])
        elif kind == "comm_msg":
            found.append([kind, "msg_id" in content["data"].get("state", {})])
        else:
            found.append([kind, content.get("data", {}).get("text/plain", "")[:80]])
    return found


ORDERED = {
    "streams": "import sys\nfor i in range(4):\n    print('out', i, flush=True)\n"
    "    print('err', i, file=sys.stderr, flush=True)",
    "stream and display": "print('a'); display('b'); print('c'); display('d')",
    "widget": "import ipywidgets\no = ipywidgets.Output()\no",
    "with a widget": "print('before')\nwith o:\n    print('in')\nprint('after')",
    "captured by a widget": "@o.capture()\ndef say(): print('in')\n"
    "print('before')\nsay()\nprint('after')",
}


@pytest.mark.parametrize("name", ORDERED)
def test_output_comes_in_the_order_of_a_plain_kernel(
    pair: tuple[HomeKernel, HomeKernel], name: str
) -> None:
    plain, away = pair
    for each in ("widget", name):  # in any order of the tests
        expected, found = order(plain.run(ORDERED[each])), order(away.run(ORDERED[each]))
    assert found == expected


def test_is_complete_is_undisturbed(pair: tuple[HomeKernel, HomeKernel]) -> None:
    plain, away = pair
    for code in ("x = 1", "for i in x:", "%%gpu\nfor i in x:", "def f(:", "if 1:\n    pass"):
        assert plain.ask("is_complete", code=code) == away.ask("is_complete", code=code)


def test_out_is_one_sequence(home: HomeKernel) -> None:
    home.run("40")
    count = home.run("%%gpu\n41").reply["execution_count"]
    assert home.run("_, __").result == "(41, 40)"
    assert home.run(f"Out[{count}] + _{count}").result == "82"
    assert home.run("%%gpu\n'semicolon';").result is None


def test_a_gpu_cell_reads_homes_results(home: HomeKernel) -> None:
    first = home.run("['first']").reply["execution_count"]
    home.run("%%gpu\n'second'")
    home.run("'third'")
    assert home.run("%%gpu\n_, __, ___").result == "('third', 'second', ['first'])"
    home.run("%%gpu\n_")
    assert home.run(f"%%gpu\nOut[{first}]").result == "['first']"
    assert "gpulease_out" not in (home.run("%%gpu\ndir()").result or "")
    assert "gpulease_out" not in (home.run("dir()").result or "")


@pytest.mark.parametrize("ask", ["Out[n + 0]", "Out.get(n)", "n in Out", "look()", "_oh[n + 0]"])
def test_a_result_that_is_not_on_the_gpu_says_where_it_is(home: HomeKernel, ask: str) -> None:
    first = home.run("['first']").reply["execution_count"]
    home.run(f"n = {first}\ndef look(): return Out[n]")
    said = home.run(f"%%gpu\n{ask}").error
    assert f"Out[{first}] is not on the GPU" in said
    count = home.run(f"%%gpu\nOut[{first}]").reply["execution_count"]
    assert home.run(f"%%gpu\nn = {count}; {ask}").ok
    assert home.run("%%gpu\nOut.get(10**6), 10**6 in Out").result == "(None, False)"
    assert home.run("%%gpu\nOut[10**6 + 0]").error == "KeyError: 1000000"


def test_a_gpu_cell_that_reads_all_results_has_those_of_both_sides(home: HomeKernel) -> None:
    first = home.run("['first']").reply["execution_count"]
    second = home.run("%%gpu\n'second'").reply["execution_count"]
    newer = f"[each for each in Out.items() if each[0] >= {first}]"
    assert home.run(f"%%gpu\n{newer}").result == f"[({first}, ['first']), ({second}, 'second')]"
    at_home = home.run("len(Out)").result
    assert home.run("%%gpu\nlen(Out) - 1").result == at_home


def test_a_gpu_cell_that_only_writes_underscores_reads_no_result(home: HomeKernel) -> None:
    home.run("(each for each in [1])")  # does not travel
    cell = home.run("%%gpu\nfor _ in range(2):\n    x = '_'  # _, __")
    assert cell.ok, cell.traceback
    assert "generator" in home.run("_").result
    assert not home.run("%%gpu\nf'{_}'").ok


SHOWN = {
    "in a second namespace of IPython": (
        "import pandas as pd\nf = [pd.Index([1])]", "f[0]", "f[0].name = 'q'\nf",
    ),
    "in a tuple": (
        "import pandas as pd\nf = pd.Index([1]); t = [f]", "t, {1: f}", "t[0].name = 'q'",
    ),
    "by a cache, and read as _": (
        "from typing import *\nT = TypeVar('T')\nclass S(Generic[T]): pass\ns = S[int]()",
        "S[int], s.__orig_class__", "len(_)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("held", SHOWN)
def test_nothing_is_said_of_what_only_results_hold(home: HomeKernel, held: str) -> None:
    make, show, change = SHOWN[held]
    home.run(make)
    home.run(show)
    said = [home.run(f"%%gpu\n{change}"), home.run("1"), home.run("%%gpu\n2")]
    assert [line for cell in said for line in cell.shown().splitlines() if "gpulease" in line] == []


def test_sys_last_error(home: HomeKernel) -> None:
    home.run("%%gpu\nraise LookupError('last')")
    found = home.run(
        "import sys\nsys.last_type.__name__, str(sys.last_value), LookupError in "
        "sys.last_type.__mro__"
    )
    assert found.result == "('LookupError', 'last', True)"


def test_capture_around_a_gpu_cell(home: HomeKernel) -> None:
    cell = home.run("%%capture around\n%%gpu\nprint('out'); display('rich'); 7")
    assert cell.ok, cell.traceback
    assert cell.messages == []
    assert home.run("around.stdout, len(around.outputs)").result == "('out\\n', 2)"


def test_output_widget_takes_what_a_gpu_block_prints(home: HomeKernel) -> None:
    home.run("import ipywidgets\nbox = ipywidgets.Output()\nbox")
    cell = home.run("with box:\n    get_ipython().run_cell_magic('gpu', '', 'print(\"boxed\")')")
    assert cell.ok, cell.traceback
    bound = [
        m["content"]["data"]["state"]["msg_id"]
        for m in cell.messages
        if m["msg_type"] == "comm_msg" and "msg_id" in m["content"]["data"].get("state", {})
    ]
    streams = [m for m in cell.messages if m["msg_type"] == "stream"]
    assert streams[0]["parent_header"]["msg_id"] == bound[0], "the front end binds output by it"


def seen(cell: Cell) -> list[Any]:
    """What a person saw of a cell."""
    return compare.seen(cell.messages, cell.reply)
