"""What a failing test shows of the programs that it started."""

import pytest

from tests import logs


def report(when, outcome):
    return pytest.TestReport("t.py::t", ("t.py", 0, "t"), {}, outcome, None, when)


def shown_in(found):
    return [(title, text) for title, text in found.sections if "of the hub.log" in title]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "of the hub.log"
    path.write_text("".join(f"line {n}\n" for n in range(200)))
    return path


def test_the_end_of_an_open_log_is_shown(log):
    failed, passed = report("call", "failed"), report("call", "passed")
    with logs.shown(log):
        logs.add_to(failed)
        logs.add_to(passed)
    [(_, text)] = shown_in(failed)
    assert text.splitlines()[0] == "line 120"
    assert text.splitlines()[-1] == "line 199"
    assert not shown_in(passed)


def test_a_log_that_the_test_itself_opened_is_shown_until_the_test_has_ended(log):
    during, after = report("call", "failed"), report("call", "failed")
    with logs.shown(log):
        pass
    logs.add_to(during)
    logs.add_to(report("teardown", "passed"))
    logs.add_to(after)
    assert shown_in(during)
    assert not shown_in(after)


def test_a_log_that_is_gone_is_said(log):
    failed = report("call", "failed")
    with logs.shown(log):
        log.unlink()
        logs.add_to(failed)
    assert "not read" in shown_in(failed)[0][1]
