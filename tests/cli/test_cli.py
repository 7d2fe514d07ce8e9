"""The command line: what it accepts, what it refuses and with which status."""

import argparse
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpulease import __version__
from gpulease.cli import command_line, main

#: What `gpulease agent` must be given to look at its other options.
AGENT = ("--service", "https://127.0.0.1:1/", "--token-file", "token")
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


def test_a_policy_is_compared_with_the_one_before(tmp_path, capsys):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(GOOD_POLICY)
    new.write_text(GOOD_POLICY + "time_outs: {idle: 7m}\n")
    assert main(["policy", "check", str(new), "--against", str(old)]) == 0
    said = capsys.readouterr().out
    assert "Everybody: an idle GPU gets its warning after 7 min, not 5 min." in said
    assert "set idle from 5m to 7m" in said
    assert main(["policy", "check", str(old), "--against", str(old)]) == 0
    assert "It changes nothing." in capsys.readouterr().out


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
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    # The demo becomes a subreaper; a test's process must not.
    monkeypatch.setattr("gpulease.companion.tree.become_subreaper", lambda: None)
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


BAD = (
    (["demo", "--port", "99999"], "--port must be from 0"),
    (["demo", "--port", "-1"], "--port must be from 0"),
    (["demo", "--idle", "nan"], "--idle must be"),
    (["demo", "--drain", "inf"], "--drain must be"),
    (["demo", "--warm-up", "nan"], "--warm-up must be"),
    (["demo", "--memory", "inf"], "--memory must be"),
    (["demo", "--port", "0", "--dir", "{file}"], "cannot be used"),
    (["demo", "--port", "0", "--dir", "/proc/no/such"], "cannot be used"),
    (["companion", "--connection-file", "{folder}"], "is a directory"),
    (["companion", "--connection-file", "/no/such/file"], "in no directory"),
    (["companion", "--connection-file", "{file}/below"], "in no directory"),
    (["companion", "--connection-file", "{folder}/c", "--park-dir", "{file}"], "no directory"),
    (["admin", "--url", "nonsense", "list"], "is not an address"),
    (["admin", "--url", "ftp://127.0.0.1/", "list"], "is not an address"),
    (["admin", "--url", "http://127.0.0.1:99999/", "list"], "is not an address"),
    (["admin", "--url", "http://[::1/", "list"], "is not an address"),
    (["doctor", "--config", "{folder}"], "a file that is there"),
    (["doctor", "--config", "/no/such.py"], "a file that is there"),
    (["doctor", "--config", "{file}"], "line 1 of"),
    (["service", "too-many"], "'too-many'"),
    (["service", "--config", "{file}"], "line 1 of"),
    (["service", "--config", "{wrong}"], "gpus"),
    (["agent", *AGENT, "--port", "99999"], "--port is 99999"),
    (["agent", *AGENT, "--port", "0", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
)


@pytest.mark.parametrize(
    ("words", "said"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_answered_in_a_line_that_says_what_to_do(
    words, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("GPULEASE_TOKEN", "very-secret")
    monkeypatch.setattr("gpulease.companion.tree.become_subreaper", lambda: None)
    file, wrong = tmp_path / "file.txt", tmp_path / "wrong.py"
    file.write_text("not = (python\n")
    wrong.write_text("c.GPULeaseService.gpus = 'two'\n")
    names = {"file": file, "folder": tmp_path, "wrong": wrong}
    assert main([word.format(**names) for word in words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("gpulease: ")
    assert said in line
    assert line.count(". ") >= 1  # what is wrong, and what to do


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("sqlite:////no/such/folder/leases.sqlite", "its file cannot be opened"),
        ("postgresql://nobody@127.0.0.1:1/leases", "nothing answers at its address"),
    ],
)
def test_a_database_that_cannot_be_reached_is_told_why(url, cause, capsys):
    assert main(["db", "upgrade", "--database", url]) == 1
    assert cause in capsys.readouterr().err


def test_a_service_that_does_not_answer_is_a_failure_not_bad_input(capsys, monkeypatch):
    monkeypatch.setenv("GPULEASE_TOKEN", "very-secret")
    assert main(["admin", "--url", "http://127.0.0.1:1/services/gpulease/", "list"]) == 1
    said = capsys.readouterr().err
    assert "does not answer" in said
    assert "very-secret" not in said


class _Service(BaseHTTPRequestHandler):
    """Answers a list of leases to one token."""

    def do_GET(self):
        known = self.headers["Authorization"] == "token right"
        body = {"items": [], "total": 0, "offset": 0, "limit": 1}
        if not known:
            body = {"reason": "not_known", "title": "The token is not known.", "status": 403}
        self.send_response(200 if known else 403)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def service_url():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/services/gpulease/"
        server.shutdown()


def test_an_admin_logs_in_once(service_url, tmp_path, capsys, monkeypatch):
    for name in ("GPULEASE_SERVICE_URL", "GPULEASE_TOKEN", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    typed = iter(["wrong", "right"])
    monkeypatch.setattr("getpass.getpass", lambda _question: next(typed))
    kept = tmp_path / "gpulease" / "admin.json"
    assert main(["admin", "--url", service_url, "login"]) != 0
    assert not kept.exists(), "what was refused is not kept"
    assert main(["admin", "--url", service_url, "login"]) == 0
    assert kept.stat().st_mode & 0o777 == 0o600
    assert main(["admin", "list"]) == 0
    assert "There are no leases." in capsys.readouterr().out
    # The token is of that service and is shown to no other.
    assert main(["admin", "--url", "http://127.0.0.1:1/services/gpulease/", "list"]) == 2
    assert "no token" in capsys.readouterr().err
    kept.chmod(0o644)
    assert main(["admin", "list"]) != 0
    assert "chmod 600" in capsys.readouterr().err
    kept.write_text("{")
    kept.chmod(0o600)
    assert main(["admin", "list"]) == 2
    assert "logout" in capsys.readouterr().err
    assert main(["admin", "logout"]) == 0
    assert main(["admin", "logout"]) == 0
    assert not kept.exists()


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


def test_every_command_has_a_help():
    """A percent sign in one was an error, or was doubled, where it is printed, and only there."""
    parsers, seen = [command_line()], 0
    while parsers:
        parser = parsers.pop()
        assert "%%%" not in parser.format_help()
        seen += 1
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    assert seen > 30


def test_python_m_gpulease_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "gpulease", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__


def test_a_database_is_backed_up_restored_exported_and_forgotten(tmp_path, capsys, monkeypatch):
    address = f"sqlite:///{tmp_path}/leases.sqlite"
    monkeypatch.setenv("DATABASE_URL", address)
    assert main(["db", "upgrade", "--database", address]) == 0
    assert main(["admin", "backup", str(tmp_path / "b")]) == 0
    assert main(["admin", "backup", str(tmp_path / "b")]) == 2
    assert "is there already" in capsys.readouterr().err
    other = f"sqlite:///{tmp_path}/other.sqlite"
    assert main(["admin", "restore", str(tmp_path / "b"), "--database", other]) == 0
    assert main(["admin", "restore", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["admin", "export", "maria"]) == 0
    assert json.loads(capsys.readouterr().out)["user"] == "maria"
    assert main(["admin", "forget", "maria"]) == 2
    assert "Nothing is stored under the name maria" in capsys.readouterr().err
    monkeypatch.delenv("DATABASE_URL")
    assert main(["admin", "export", "maria"]) == 2
    assert "--database" in capsys.readouterr().err


@pytest.mark.parametrize("which", [[], ["l1", "--group", "cs101"]])
def test_either_a_lease_is_ended_or_all_of_a_group(
    which: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["admin", "end", *which, "--reason", "Over."])
    assert "--group" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "json_", "url"),
    [
        (["show", "r1", "--json"], True, None),
        (["--json", "log", "r1"], True, None),
        (["log", "r1", "--url", "http://127.0.0.1/"], False, "http://127.0.0.1/"),
        (["--url", "http://127.0.0.1/", "cancel", "r1"], False, "http://127.0.0.1/"),
        (["show", "r1"], False, None),
    ],
)
def test_options_of_runs_stand_before_or_after_what_is_done(
    words: list[str], json_: bool, url: str | None
) -> None:
    found = command_line().parse_args(["runs", *words])
    assert (found.json, found.url, found.run_id) == (json_, url, "r1")


#: What an install with some extras has of what all of them bring; the rest cannot be imported.
ALONE = """
import re, sys
from importlib import metadata

extras, words = sys.argv[1].split(), sys.argv[2:]
tops = {}
for top, names in metadata.packages_distributions().items():
    for name in names:
        tops.setdefault(re.sub("[-_.]+", "-", name).lower(), set()).add(top)

def needed(name, extras, seen):
    from packaging.requirements import Requirement
    key = re.sub("[-_.]+", "-", name).lower(), frozenset(extras)
    if key in seen:
        return
    seen.add(key)
    try:
        found = metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        return
    for each in map(Requirement, found):
        if each.marker is None or any(each.marker.evaluate({"extra": x}) for x in ("", *extras)):
            needed(each.name, each.extras, seen)

def imported(extras):
    seen = set()
    needed("gpulease", extras, seen)
    return {top for name, _ in seen for top in tops.get(name, ())}

class Missing:
    lacking = imported({"test", "check"}) - imported(extras) - {"gpulease"}
    def find_spec(self, name, *_):
        if name.partition(".")[0] in self.lacking:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

assert "sqlalchemy" in Missing.lacking
sys.meta_path.insert(0, Missing())
from gpulease.cli import main
for each in words:
    try:
        main(each.split())
    except SystemExit:
        pass
"""


@pytest.mark.parametrize(
    ("extras", "commands", "said"),
    [
        ("", ["--help", "companion --help", "strip --help", "db upgrade --database sqlite:///x"],
         "pip install 'gpulease[service]'"),
        ("lab", ["submit --help", "runs"], "It is not known where"),
        ("agent", ["agent --help"], ""),
    ],
)  # fmt: skip
def test_a_command_needs_only_what_its_install_brings(
    extras: str, commands: list[str], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, extras, *commands],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    asked = sum("--help" in each for each in commands)
    assert done.stdout.count("usage: gpulease") == asked, done.stderr
    assert said in done.stderr
