"""Figures: what pyplot holds is the same on both sides, and each travels by itself."""

import pytest

from tests.helpers import wait_for

pytest.importorskip("matplotlib")
PLT = "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
#: What a cell can ask pyplot.
ASKED = "(plt.get_fignums(), plt.gcf().number, [ax.get_title() for ax in plt.gcf().axes])"


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_the_current_figure_is_the_same_on_both_sides(pair, first):
    here, there = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    pair.home("seen = []\n" + PLT)
    here(f"plt.plot([1, 2]); plt.figure(7, dpi=50); plt.plot([3]); seen.append({ASKED})")
    there(f"plt.title('second'); seen.append({ASKED}); plt.figure(1)")
    here(f"plt.title('first'); seen.append({ASKED}); kept = plt.gcf(); plt.close(7)")
    there(f"seen.append({ASKED}); assert plt.gcf() is kept; plt.close('all')")
    here("seen.append(plt.get_fignums())")
    pair.home("")
    assert pair.ns["seen"] == [
        ([1, 7], 7, [""]), ([1, 7], 7, ["second"]), ([1, 7], 1, ["first"]), ([1], 1, ["first"]), [],
    ]  # fmt: skip


def test_a_figure_in_a_variable_has_one_number(pair):
    pair.home(PLT + "x, ax = plt.subplots(); line, = ax.plot([1, 2]); seen = []")
    look = "seen.append((plt.get_fignums(), x.number, plt.gcf() is x, ax.lines[0] is line))"
    for _ in range(2):
        pair.gpu(f"line.set_ydata([3, 4]); {look}")
        pair.home(f"line.set_ydata([5, 6]); {look}")
    assert pair.ns["seen"] == [([1], 1, True, True)] * 4


def test_one_that_nobody_touches_is_not_sent_again(pair):
    pair.home(PLT + "plt.plot([1, 2]); n = [1]")
    pair.gpu("n.append(2)")
    pair.home("n.append(3)")
    pair.gpu("n.append(4)")
    assert set(pair.last.moved) == {"n"}


def test_a_commit_that_fails_leaves_the_figures(pair):
    pair.home(PLT + "plt.plot([1]); class_ = type('C', (), {})")
    pair.gpu("plt.title('there')")
    pair.home("assert plt.gca().get_title() == 'there'; held = plt.gcf()")
    before = pair.side.side._roots.copy()
    pair.home("plt.close('all'); plt.figure(3)")
    pair.side.side._roots.restore(before)
    pair.home("assert plt.get_fignums() == [1] and plt.gcf() is held")


def test_one_made_away_is_home_before_it_is_asked_for(pair):
    # How soon it comes is the machine's doing; what it is at home is not.
    pair.home(PLT)
    pair.gpu("fig, ax = plt.subplots(); ax.plot([1, 2, 3])")
    wait_for(lambda: (pair.side.commit_pending(), "ax" in pair.ns)[1])
    pair.home("ax")
    assert "ax" not in pair.last.moved
    pair.home("ax.plot([3, 4])")
    pair.gpu("assert len(ax.lines) == 2")
    assert not pair.after.notes
    pair.home("assert fig.axes[0] is ax and len(ax.lines) == 2")


def test_it_keeps_what_follows_its_parts(pair):
    pair.home(PLT + "fig, ax = plt.subplots(); im = ax.imshow([[1, 2], [3, 4]]); seen = []")
    pair.home("bar = fig.colorbar(im)\ndef moved(_): seen.append(1)")
    pair.home("ax.callbacks.connect('xlim_changed', moved)")
    pair.gpu("ax.set_xlim(0, 9); im.set_clim(0, 9); assert seen == [1] and bar.vmax == 9")
    assert not pair.after.notes
    pair.home("ax.set_xlim(0, 3); im.set_clim(0, 5); assert seen == [1, 1] and bar.vmax == 5")
    pair.home("fig.canvas.draw(); assert plt.figure(fig.number) is fig")


def test_the_one_that_changes_is_the_one_that_travels(pair):
    pair.home(PLT + "from matplotlib.animation import FuncAnimation\none, a = plt.subplots()")
    pair.home("two, b = plt.subplots(); line, = b.plot([1]); three, c = plt.subplots()")
    pair.home("film = FuncAnimation(three, lambda n: [], frames=2); list(film.frame_seq)")
    pair.gpu("b.set_title('new')")
    pair.home("b.set_xlabel('x')")
    pair.gpu("assert b.get_title() == 'new' and b.get_xlabel() == 'x' and b.lines[0] is line")
    assert {"two", "b", "line"} <= set(pair.last.moved)
    assert {"one", "a", "three", "c", "film"}.isdisjoint(pair.last.moved)


def test_what_nobody_can_reach_is_not_looked_at_and_what_a_library_draws_on_is(
    new_pair, monkeypatch
):
    pair = new_pair()  # of one that lent what it made, something may be held
    pair.attach()
    pair.home(PLT + "import pandas as pd\nplt.subplots(2, 2); n = []")
    for _ in range(2):
        pair.gpu("n.append(1)")
        pair.home("n.append(2)")
    looked = []
    survey = pair.side.side._survey
    with monkeypatch.context() as patch:
        patch.setattr(
            pair.side.side, "_survey", lambda *a, **k: looked.append(survey(*a, **k)) or looked[-1]
        )
        pair.gpu("n.append(3)")
    assert [e.rests for each in looked for e in each.components if "n:Figure[1]" in e.roots] == [
        True
    ]
    pair.home("pd.Series([1, 2]).plot()")
    pair.gpu("assert len(plt.gca().lines) == 1")
