"""What goes where: no version is ever lost, and two sides that rest are equal."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpulease.mirror.entries import DIRECTORY, Entry, Kind, same
from gpulease.mirror.plan import Conflict, Step, aside_name, plan
from tests.helpers import draws
from tests.mirror.model import TREES, Model, contents, left_out, versions

ONE, TWO, THREE = (Entry(Kind.FILE, mark, 1) for mark in "123")
LARGE = Entry(Kind.LEFT_OUT, "too_large", 2**31)


def settled(model: Model) -> int:
    """Plan and do until nothing is left; return how many rounds it took."""
    for number in range(8):
        if model.round().idle:
            return number
    raise AssertionError(model.plan())


def equal(model: Model) -> bool:
    """Whether both sides hold the same, but for what one of them cannot send."""
    return all(
        same(model.home.get(path), model.away.get(path))
        for path in {*model.home, *model.away}
        if path not in left_out(model.home) and path not in left_out(model.away)
    )


@settings(max_examples=draws(60))
@given(TREES, TREES, TREES)
def test_every_pass_ends_with_equal_sides_and_every_new_version(base, home, away):
    model = Model(base, home, away)
    mine, theirs = versions(home, model.base), versions(away, model.base)
    assert settled(model) <= 4
    assert equal(model)
    assert mine | theirs <= contents(model.home)
    assert model.plan().idle
    assert not model.plan().conflicts


@settings(max_examples=draws(60))
@given(TREES, TREES, TREES, st.lists(st.booleans(), max_size=30))
def test_an_interruption_at_any_point_loses_no_version(base, home, away, kept):
    model = Model(base, home, away)
    mine, theirs = versions(home, model.base), versions(away, model.base)
    script = iter(kept)
    for _ in range(3):
        model.round(lambda: next(script, True))
    settled(model)
    assert equal(model)
    assert mine | theirs <= contents(model.home)


@given(TREES, TREES, TREES)
def test_what_cannot_travel_is_never_touched_at_home(base, home, away):
    model = Model(base, home, away)
    kept = left_out(home)
    number = len(left_out(away))
    settled(model)
    assert left_out(model.home) == kept
    assert len(left_out(model.away)) == number


def test_one_side_that_changed_wins():
    base = {"x": ONE, "y": ONE, "gone": ONE}
    made = plan(base, {"x": TWO, "y": ONE}, {"x": ONE, "y": THREE, "gone": ONE, "new": TWO})
    assert made.home == [Step("new", None, TWO), Step("y", ONE, THREE)]
    assert made.away == [Step("gone", ONE, None), Step("x", ONE, TWO)]
    assert made.conflicts == []


def test_a_conflict_keeps_homes_name_and_moves_the_gpus_version_aside():
    model = Model({"t.csv": ONE}, {"t.csv": TWO}, {"t.csv": THREE})
    made = model.round()
    assert made.conflicts == [Conflict("t.csv", kept_as="t (from GPU).csv")]
    settled(model)
    assert model.home == model.away == {"t.csv": TWO, "t (from GPU).csv": THREE}


def test_a_deletion_counts_only_for_the_version_that_was_deleted():
    made = plan({"x": ONE}, {}, {"x": ONE})
    assert made.away == [Step("x", ONE, None)]
    changed = plan({"x": ONE}, {}, {"x": TWO})
    assert changed.home == [Step("x", None, TWO)]
    assert changed.conflicts == [Conflict("x", deleted="home")]
    other = plan({"x": ONE}, {"x": TWO}, {})
    assert other.away == [Step("x", None, TWO)]
    assert other.conflicts == [Conflict("x", deleted="gpu")]


def test_a_directory_lives_as_long_as_something_new_is_in_it():
    made = plan({"d": DIRECTORY}, {}, {"d": DIRECTORY, "d/new": ONE})
    assert made.home == [Step("d", None, DIRECTORY), Step("d/new", None, ONE)]
    assert made.away == []


def test_what_home_can_send_no_longer_is_absent_in_the_mirror_not_old():
    made = plan({"x": ONE}, {"x": LARGE}, {"x": ONE})
    assert made.away == [Step("x", ONE, None)]
    assert made.home == []


def test_what_is_too_large_beside_the_gpu_stays_there():
    made = plan({"x": ONE}, {"x": ONE}, {"x": LARGE})
    assert made.idle


def test_a_new_file_does_not_take_the_name_of_one_that_home_cannot_send():
    model = Model({}, {"x": LARGE}, {"x": ONE})
    settled(model)
    assert model.home == {"x": LARGE, "x (from GPU)": ONE}


@example("a/b.tar.gz")
@example(".bashrc")
@given(st.text("ab./", min_size=1).filter(lambda p: not p.endswith("/")))
def test_a_name_aside_is_free_and_in_the_same_directory(path):
    taken = {path: ONE}
    first = aside_name(path, [taken])
    second = aside_name(path, [taken, {first: ONE}])
    assert len({path, first, second}) == 3
    assert first.rpartition("/")[0] == second.rpartition("/")[0] == path.rpartition("/")[0]


def test_what_was_not_looked_into_is_not_deleted():
    closed = Entry(Kind.LEFT_OUT, "unreadable")
    base = {"d": DIRECTORY, "d/x": ONE, "y": ONE}
    assert plan(base, base, {"d": closed, "y": ONE}).idle
    assert plan(base, base, {"d": closed}).home == [Step("y", ONE, None)]
    made = plan(base, {"d": closed, "y": ONE}, {"d": DIRECTORY, "d/x": TWO, "y": ONE})
    assert made.idle


def test_a_file_that_is_being_moved_is_not_deleted():
    moving = Entry(Kind.LEFT_OUT, "busy")
    assert plan({"x": ONE}, {"x": ONE}, {"x": moving}).idle
