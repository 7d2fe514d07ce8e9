"""A lease may end while a home cell runs: what is received by then is home's."""

import threading

from tests.helpers import wait_for


def drain_beside_a_cell(pair):
    """Drain on a thread, as the kernel does, while the main thread commits nothing."""
    reports = []
    thread = threading.Thread(target=lambda: reports.append(pair.side.drain(60)))
    thread.start()
    wait_for(lambda: not thread.is_alive())
    return reports[0]


def test_large_values_are_safe_while_a_home_cell_runs(pair):
    pair.home("import numpy as np\nw = np.zeros(15_000_000)")
    pair.gpu("w += 1\nv = np.ones(4_000_000)\nu = [v, 'alias']\nn = 5")
    pair.side.before_home_cell("while True: pass")
    report = drain_beside_a_cell(pair)
    assert report.done, report
    pair.companion.kill()
    pair.side.after_home_cell()
    assert not pair.side.disconnect(died=False)
    assert pair.ns["w"].sum() == 15_000_000
    assert pair.ns["u"][0] is pair.ns["v"]
    assert pair.ns["n"] == 5


def test_what_does_not_fit_is_named(new_pair):
    pair = new_pair(available=lambda: 350 * 2**20)
    pair.attach()
    pair.gpu("import numpy as np\nw = np.ones(15_000_000)\nv = np.ones(3_000_000)")
    pair.side.before_home_cell("while True: pass")
    report = drain_beside_a_cell(pair)
    assert not report.done
    assert [blocker.name for blocker in report.blockers] == ["w"]
    assert "memory" in report.blockers[0].blocker
    pair.side.after_home_cell()
    pair.side.commit_pending()
    assert pair.ns["v"].sum() == 3_000_000


def test_a_name_bound_by_that_cell_is_homes(pair):
    pair.gpu("import numpy as np\nw = np.ones(4_000_000)")
    pair.side.before_home_cell("while True: pass")
    pair.ns["w"] = "mine"
    assert drain_beside_a_cell(pair).done
    pair.side.after_home_cell()
    pair.side.commit_pending()
    assert pair.ns["w"] == "mine"
    pair.gpu("seen = w")
    assert pair.home("seen") == "mine"
