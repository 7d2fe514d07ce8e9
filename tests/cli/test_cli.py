"""The command line: what it accepts, what it refuses and with which status."""

import subprocess
import sys

import pytest

from gpulease import __version__
from gpulease.cli import main

GOOD_POLICY = """
pools: {cards: {}}
classes:
  t4: {pool: cards, memory: 16GiB}
"""


def test_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_a_valid_policy(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD_POLICY)
    assert main(["policy", "check", str(file)]) == 0
    assert "t4" in capsys.readouterr().out


def test_every_mistake_of_a_policy_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD_POLICY + "time_outs: {idle: soon}\nlimits: {queue_max: -1}\n")
    assert main(["policy", "check", str(file)]) == 2
    said = capsys.readouterr().out
    assert f"{file}:5:" in said
    assert f"{file}:6:" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["policy", "check", "/no/such/file"], "cannot be read"),
        (["demo", "--gpus", "0"], "--gpus must be"),
        (["demo", "--idle", "-3"], "--idle must be"),
        (["db", "upgrade", "--database", "nonsense"], "gpulease:"),
        (["admin", "list"], "--url"),
        (["admin", "--url", "http://127.0.0.1:1/services/gpulease/", "list"], "token"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_exits_with_2_and_says_why(words, said, capsys, monkeypatch):
    for name in ("GPULEASE_SERVICE_URL", "GPULEASE_TOKEN", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # The demo becomes a subreaper; a test's process must not.
    monkeypatch.setattr("gpulease.demo.processes.become_subreaper", lambda: None)
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["nonsense"], ["demo", "--port", "x"], ["admin", "end", "1"]]
)
def test_what_cannot_be_parsed_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_service_that_does_not_answer_is_a_failure_not_bad_input(capsys, monkeypatch):
    monkeypatch.setenv("GPULEASE_TOKEN", "very-secret")
    assert main(["admin", "--url", "http://127.0.0.1:1/services/gpulease/", "list"]) == 1
    said = capsys.readouterr().err
    assert "does not answer" in said
    assert "very-secret" not in said


def test_tables_are_made_once_and_again(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'leases.sqlite'}"
    assert main(["db", "upgrade", "--database", url]) == 0
    assert main(["db", "upgrade", "--database", url]) == 0


def test_help_loads_no_heavy_library():
    heavy = "{'jupyterhub', 'sqlalchemy', 'pydantic', 'zmq', 'numpy', 'aiohttp', 'IPython'}"
    code = (
        "import sys, gpulease.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('LOADED', sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout


def test_python_m_gpulease_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "gpulease", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
