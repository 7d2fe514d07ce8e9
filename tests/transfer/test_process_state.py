"""Generators, working directory, environment and search path follow the cells; secrets never."""

# ruff: noqa: E501 - one notebook a line

import os
import pickle
import random
import sys

import pytest

from gpulease.sides.state.process_state import ProcessState
from gpulease.transfer import state
from tests.transfer.kinds import empty, open_pair, plain, play

DEVICE_AND_TOKEN = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JUPYTERHUB_API_TOKEN",
    "GPULEASE_LEASE_TOKEN", "MY_SECRET", "OPENAI_API_KEY", "aws_secret_access_key", "DB_PASSWORD",
    "HF_TOKEN", "PYTHONHASHSEED", "AWS_ACCESS_KEY_ID", "GH_CREDENTIALS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    """Whatever a test does to this process is put back."""
    monkeypatch.chdir(tmp_path)
    before, path, state = dict(os.environ), list(sys.path), random.getstate()
    umask = os.umask(0o022)
    yield
    os.umask(umask)
    random.setstate(state)
    sys.path[:] = path
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="module")
def shared():
    with open_pair() as pair:
        yield pair


def same(pair, cells):
    expected = plain(cells)
    assert play(pair, cells, beside_gpu=False) == expected
    assert play(pair, cells, beside_gpu=True) == expected


def test_random_goes_on_across_sides(shared):
    draw = "seen.append((random.random(), random.gauss(0, 1), random.sample(range(99), 3)))"
    same(shared, ("import random\nrandom.seed(7)\nseen = []", draw, draw, draw, draw))


def test_seeding_on_either_side(shared):
    same(shared, ("import random\nseen = []\nrandom.seed(1)", "seen.append(random.random())",
                  "random.seed(2)", "seen.append(random.random())", "seen.append(random.random())"))  # fmt: skip


def test_numpy_goes_on_across_sides(shared):
    draw = "seen.append((np.random.rand(), np.random.randn(), np.random.permutation(9).tolist()))"
    same(shared, ("import numpy as np\nnp.random.seed(7)\nseen = []", draw, draw, draw, draw))


def test_numpy_generators_are_variables(shared):
    draw = "seen.append((g.random(), h.random(), np.random.rand()))"
    make = "import numpy as np\nnp.random.seed(1)\ng = h = np.random.default_rng(7)\nseen = []"
    same(shared, (make, draw, draw, draw, draw))


def test_numpy_imported_on_one_side_only(shared):
    same(shared, ("seen = []", "import numpy as np; np.random.seed(3)",
                  "seen.append(np.random.rand())", "seen.append(np.random.rand())"))  # fmt: skip


def test_the_working_directory(shared, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    here = f"import os\nseen = []\nos.chdir({str(tmp_path)!r})"
    look = "seen.append(os.path.basename(os.getcwd()))"
    same(shared, (here, f"os.chdir('one')\n{look}", f"{look}\nos.chdir('../two')", look, look))


def test_files_of_both_sides_have_the_modes_that_the_persons_umask_gives(shared, tmp_path):
    here = f"import os\nseen = []\nos.chdir({str(tmp_path)!r})\nos.umask(0o027)"
    write = "seen.append({how} or oct(os.stat({name!r}).st_mode & 0o777))"
    made = write.format(how="os.makedirs('d', exist_ok=True)", name="d")
    wrote = write.format(how="open('f', 'a').close()", name="f")
    remove = "os.rmdir('d')\nos.remove('f')"
    cells = (here, made, wrote, f"{remove}\nbefore = os.umask(0o002)", made, wrote, remove,
             "seen.append(os.umask(0o022))")  # fmt: skip
    same(shared, cells)


def test_a_removed_working_directory(shared, tmp_path):
    here = f"import os\nseen = []\nos.chdir({str(tmp_path)!r})\nos.makedirs('gone', exist_ok=True)"
    same(shared, (here, "os.chdir('gone')", "os.rmdir(os.getcwd())\nseen.append(1)",
                  f"os.chdir({str(tmp_path)!r})", "seen.append(os.path.isdir('gone'))"))  # fmt: skip


def test_environment_added_changed_removed(shared):
    look = "seen.append(os.environ.get('KINDS_A'))"
    same(shared, ("import os\nseen = []\nos.environ['KINDS_A'] = '1'", look,
                  "os.environ['KINDS_A'] = '2'", f"{look}\nos.environ['KINDS_A'] = '3'", look,
                  "del os.environ['KINDS_A']", look, look,
                  "os.environ['KINDS_A'] = 'ü=\\n'", look, look,
                  "os.environ.pop('KINDS_A')", look))  # fmt: skip


def test_an_environment_entry_goes_where_it_was_made(shared):
    look = "seen.append(os.environ.get('KINDS_E'))"
    same(shared, ("import os\nseen = []", "os.environ['KINDS_E'] = '1'", look,
                  "del os.environ['KINDS_E']", look, look))  # fmt: skip


def test_search_path(shared):
    look = "seen.append([p for p in sys.path if p.startswith('/kinds')])"
    same(shared, ("import sys\nseen = []\nsys.path.append('/kinds/a')", look,
                  "sys.path.insert(0, '/kinds/b')", look, f"sys.path.remove('/kinds/a')\n{look}", look,
                  "sys.path.remove('/kinds/b')", look, look))  # fmt: skip


def test_a_module_found_by_a_new_entry_of_the_search_path(shared, tmp_path):
    """It is loaded before the new search path holds there."""
    (tmp_path / "kinds_helper.py").write_text("def f(): return 'helped'\n")
    shared.home(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport kinds_helper")
    shared.gpu("said = kinds_helper.f(); first = sys.path[0]")
    shared.home(f"assert said == 'helped' and first == {str(tmp_path)!r}")
    shared.home(f"sys.path.remove({str(tmp_path)!r})")
    shared.gpu(f"assert {str(tmp_path)!r} not in sys.path")


def test_search_path_keeps_its_order(shared):
    look = "seen.append([sys.path.index('/kinds/c') == 0, sys.path[-1]])"
    same(shared, ("import sys\nseen = []\nsys.path.append('/kinds/z')", "sys.path.insert(0, '/kinds/c')",
                  look, look, "sys.path.remove('/kinds/c'); sys.path.remove('/kinds/z')"))  # fmt: skip


@pytest.mark.parametrize("name", DEVICE_AND_TOKEN)
def test_device_and_token_variables_stay(shared, name):
    empty(shared)
    shared.gpu(f"import os\nthere = os.environ.get({name!r})")
    shared.home(f"import os\nos.environ[{name!r}] = 'kinds-home-value'\nbefore = there")
    shared.gpu(f"seen = os.environ.get({name!r})\nos.environ[{name!r}] = 'kinds-gpu-value'")
    shared.home(f"assert seen == before and os.environ[{name!r}] == 'kinds-home-value'")
    shared.home(f"del os.environ[{name!r}]")
    shared.gpu(f"assert os.environ[{name!r}] == 'kinds-gpu-value'\ndel os.environ[{name!r}]")


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG"])
def test_what_is_named_like_a_secret_or_a_device_and_is_none_travels(monkeypatch, name):
    state = ProcessState()
    monkeypatch.setenv(name, "1")
    assert pickle.loads(state.capture())["environ"] == {name: "1"}


@pytest.mark.parametrize("name", DEVICE_AND_TOKEN)
def test_no_secret_in_what_is_captured(monkeypatch, name):
    state = ProcessState()
    monkeypatch.setenv(name, "do-not-tell")
    monkeypatch.setenv("KINDS_B", "tell")
    data = state.capture()
    assert b"do-not-tell" not in data
    assert pickle.loads(data)["environ"] == {"KINDS_B": "tell"}


def test_a_shared_token_travels_and_is_taken_back(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "mine")  # before this side began
    home, away = ProcessState(), ProcessState()
    home.share(["HF_TOKEN"])
    data = home.capture()
    monkeypatch.delenv("HF_TOKEN")
    away.apply(data)
    assert os.environ["HF_TOKEN"] == "mine"
    home.share([])
    data = home.capture()
    away.apply(data)
    assert "HF_TOKEN" not in os.environ
    assert b"mine" not in data


def test_a_companion_does_not_say_what_is_shared(monkeypatch):
    home, away = ProcessState(), ProcessState()
    away.apply(home.capture())
    away.share(["HF_TOKEN"])
    home.share([])
    monkeypatch.setenv("HF_TOKEN", "theirs")
    data = away.capture()
    monkeypatch.setenv("HF_TOKEN", "mine")
    home.apply(data)
    assert os.environ["HF_TOKEN"] == "mine"


def test_device_variables_are_never_shared(monkeypatch):
    home = ProcessState()
    home.share(["CUDA_VISIBLE_DEVICES", "JUPYTERHUB_API_TOKEN"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    assert pickle.loads(home.capture())["environ"] == {}


def test_what_was_there_before_is_not_sent(monkeypatch):
    monkeypatch.setenv("KINDS_C", "old")
    state = ProcessState()
    assert pickle.loads(state.capture())["environ"] == {}


def test_nothing_is_captured_twice(monkeypatch):
    state = ProcessState()
    data = state.capture()
    state.agreed(data)
    assert state.capture() == b""
    monkeypatch.setenv("KINDS_E", "1")
    assert state.capture() != b""
    state.agreed(state.capture())
    state.forget_peer()
    assert state.capture() != b""


def test_a_secret_of_a_peer_is_never_applied(monkeypatch):
    """A peer that sends what it should not is not believed."""
    state = ProcessState()
    wanted = pickle.loads(state.capture())
    wanted["environ"] = {"CUDA_VISIBLE_DEVICES": "7", "KINDS_D": "1"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    state.apply(pickle.dumps(wanted, 5))
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert os.environ["KINDS_D"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-mine")
    assert b"GPU-mine" not in state.capture(), "nor is it told what it asked for"


@pytest.mark.parametrize("where", ["home", "gpu"])
def test_a_part_of_a_package_is_there_with_it(shared, where):
    """`import a.b` binds `a`: a cell on the other side says `a.b` all the same."""
    other = {"home": shared.gpu, "gpu": shared.home}[where]
    getattr(shared, where)(
        "import xml, xml.dom.expatbuilder\ndef parse(): return xml.dom.expatbuilder"
    )
    other("assert xml.dom.expatbuilder.__name__ == 'xml.dom.expatbuilder'\nparse()")


def test_a_part_comes_with_its_package_where_that_is_imported_later(shared):
    shared.gpu("import sched, wsgiref.util")
    shared.home("assert 'wsgiref' in globals() and wsgiref.util")


def test_a_part_that_is_not_there_stops_nothing(shared, tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__init__.py").write_text("")
    part = tmp_path / "packed" / "part.py"
    part.write_text(
        "import os\nif os.getpid() != PID: raise RuntimeError('not here')\n".replace(
            "PID", str(os.getpid())
        )
    )
    shared.home(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport packed.part")
    shared.gpu("assert not hasattr(packed, 'part')")
    shared.home("assert packed.part")


def test_a_generator_of_a_library_that_is_not_here_goes_on_to_the_next_companion(monkeypatch):
    import numpy  # the other side has it

    numpy.random.seed(5)
    told = state.read()["numpy.random"]
    monkeypatch.setattr(state, "_later", {})
    with monkeypatch.context() as without:
        for name in [n for n in sys.modules if n.partition(".")[0] == "numpy"]:
            without.delitem(sys.modules, name)
        state.apply({"numpy.random": told})
        passed_on = state.read()["numpy.random"]
    assert passed_on is told
