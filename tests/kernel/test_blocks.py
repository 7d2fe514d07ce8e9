"""``with gpu():`` and ``@gpu.run`` in a real notebook kernel, and the transformer by itself."""

import ast

import pytest
from IPython.core.error import InputRejected

from gpulease.kernel.extension import HOOK, BlockTransformer
from tests.kernel.parts import HomeKernel


def transformed(source: str) -> str:
    transformer = BlockTransformer(lambda: source, lambda name: name == "gpu")
    return ast.unparse(transformer.visit(ast.parse(source)))


def test_a_block_becomes_a_call_with_its_own_lines() -> None:
    found = ast.parse(transformed("x = 1\nwith gpu('A100', wait='5m'):\n    y = '''a\nb'''\nz = 1"))
    call = found.body[1].value  # type: ignore[attr-defined]
    assert call.func.id == HOOK
    text, gpu_class = (argument.value for argument in call.args)
    assert gpu_class == "A100"
    assert text == "#\nwith gpu('A100', wait='5m'):\n    y = '''a\nb'''\n"
    assert call.keywords[0].arg == "wait"


@pytest.mark.parametrize(
    "source",
    [
        "if True:\n    with gpu():\n        a = 1\n",
        "for i in range(3):\n    if i:\n        with gpu():\n            a = 1\n",
        "try:\n    with gpu(): a = 1\nfinally:\n    pass\n",
        "try:\n    pass\nexcept ValueError:\n    with gpu():\n        a = 1\n",
        "match 1:\n    case 1:\n        with gpu():\n            a = 1\n",
        "while False:\n    pass\nelse:\n    with gpu():\n        a = 1\n",
    ],
)
def test_nested_blocks_stay_valid_python(source: str) -> None:
    tree = ast.parse(transformed(source))
    texts = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == HOOK
    ]
    assert len(texts) == 1
    line = next(n.lineno for n in ast.walk(ast.parse(source)) if isinstance(n, ast.With))
    block = ast.parse(texts[0])
    assert any(isinstance(n, ast.With) and n.lineno == line for n in ast.walk(block))


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("for i in x:\n    with gpu():\n        break", "break"),
        ("for i in x:\n    with gpu():\n        continue", "continue"),
        ("with gpu():\n    await x", "await"),
        ("with gpu():\n    async with x: pass", "await"),
        ("with gpu(), open('f'):\n    pass", "second item"),
        ("with gpu() as g:\n    pass", "as NAME"),
    ],
)
def test_what_cannot_be_cut_out_is_rejected(source: str, word: str) -> None:
    with pytest.raises(InputRejected, match=word):
        transformed(source)


def test_loops_and_functions_inside_a_block_are_its_own() -> None:
    inner = "with gpu():\n    for i in x:\n        break\n    def f():\n        yield 1\n"
    assert HOOK in transformed(inner)


def test_other_names_and_inner_scopes_are_left_alone() -> None:
    for source in ("with other():\n    pass", "def f():\n    with gpu():\n        pass"):
        assert ast.dump(ast.parse(transformed(source))) == ast.dump(ast.parse(source))


def test_only_rejections_are_raised() -> None:
    def broken() -> str:
        raise RuntimeError("no text")

    with pytest.raises(InputRejected):
        BlockTransformer(broken, lambda _: True).visit(ast.parse("with gpu():\n    pass"))


def test_a_block_runs_away_and_the_rest_at_home(home: HomeKernel) -> None:
    cell = home.run(
        "import os\nhere = [os.getpid()]\nfor k in range(2):\n    with gpu():\n"
        "        import os\n        there = os.getpid()\n        total = k + 10\n"
        "    here.append(total)\nhere.append(os.getpid())\nhere"
    )
    assert cell.ok, cell.traceback
    assert cell.result == str([home.pid, 10, 11, home.pid])
    assert home.run("there").result not in (None, str(home.pid))


def test_an_error_in_a_block_can_be_caught(home: HomeKernel) -> None:
    cell = home.run(
        "try:\n    with gpu():\n        1 / 0\nexcept ZeroDivisionError as error:\n"
        "    said = str(error)\nsaid"
    )
    assert cell.result == "'division by zero'", cell.traceback


def test_a_block_in_a_function_is_refused_before_its_body(home: HomeKernel) -> None:
    home.run("ran = []")
    cell = home.run("def f():\n    with gpu():\n        ran.append(1)\nf()")
    assert "%%gpu" in cell.error
    assert "@gpu.run" in cell.error
    assert home.run("ran").result == "[]"


def test_a_rejected_block_does_not_run_here(home: HomeKernel) -> None:
    code = "ran_here = False\nfor i in [1]:\n    with gpu():\n        ran_here = True; break"
    cell = home.run(code)
    assert cell.error.startswith("InputRejected")
    assert "NameError" in home.run("ran_here").error


def test_a_decorated_function_runs_away(home: HomeKernel) -> None:
    cell = home.run(
        "import os\n@gpu.run\ndef where(values, *, more):\n    values.append(more)\n"
        "    return os.getpid(), sum(values)\n"
        "numbers = [1, 2]\npid, total = where(numbers, more=4)\ntotal, numbers, pid == os.getpid()"
    )
    assert cell.result == "(7, [1, 2, 4], False)", cell.traceback
    assert "gpulease_call" not in (home.run("dir()").result or "")


def test_a_decorated_functions_error_is_the_original_kind(home: HomeKernel) -> None:
    cell = home.run(
        "@gpu.run\ndef bad():\n    raise KeyError('k')\n"
        "try:\n    bad()\nexcept KeyError as error:\n    caught = str(error)\ncaught"
    )
    assert cell.ok, cell.traceback
    assert "k" in (cell.result or "")


def test_in_a_gpu_cell_both_are_plain(home: HomeKernel) -> None:
    cell = home.run("%%gpu\n@gpu.run\ndef f():\n    return 5\nwith gpu():\n    six = f() + 1\nsix")
    assert cell.result == "6", cell.traceback
