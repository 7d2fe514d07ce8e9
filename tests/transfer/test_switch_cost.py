"""What a switch looks at: work follows what the cell touches, not what the notebook holds."""

import contextlib
import gc
import sys

import pytest

from gpulease.transfer.switch.planning import Wanted, plan
from gpulease.transfer.switch.touched import touched_names
from gpulease.transfer.values.acknowledgement import acknowledge
from gpulease.transfer.values.groups import name_root, names_of, unit_root
from gpulease.transfer.values.packing import kept
from gpulease.transfer.values.packing.pickling import Packed, Packer
from gpulease.transfer.values.packing.shipment import Incoming
from gpulease.transfer.values.side import Side
from gpulease.transfer.values.walks.walk import Walk
from gpulease.transfer_next.api import TransferSettings
from tests.transfer.kinds import empty, open_pair

#: More objects than a group may have to be small.
MANY = "big = [{'a': n, 'b': str(n)} for n in range(6000)]"


@pytest.fixture(scope="module")
def shared():
    with open_pair({"small_objects": 1000}) as made:
        yield made


@pytest.fixture
def pair(shared, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", shared.main)
    empty(shared)
    return shared


@contextlib.contextmanager
def work(monkeypatch):
    """Count the objects that home's walks visit, and note the names that it packs."""
    seen = {"walked": 0, "packed": set()}
    run, pack = Walk.run, Packer.pack

    def walked(self, *args):
        groups = run(self, *args)
        seen["walked"] += sum(group.objects for group in groups)
        return groups

    def packed(self, group, *args, **options):
        seen["packed"].update(group.names)
        return pack(self, group, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Walk, "run", walked)
        patch.setattr(Packer, "pack", packed)
        yield seen


def held_by_both(pair, source=MANY):
    pair.home(source)
    pair.gpu("n = len(big)")
    pair.home("pass")


def test_a_cell_that_reads_nothing_looks_at_nothing_large(pair, monkeypatch):
    held_by_both(pair)
    with work(monkeypatch) as seen:
        pair.gpu("pass")
        pair.home("pass")
        pair.gpu("pass")
    assert "big" not in seen["packed"]
    assert seen["walked"] < 100


def test_what_nobody_asked_for_is_not_walked_though_the_other_side_never_had_it(pair, monkeypatch):
    pair.home(MANY)
    pair.gpu("pass")
    pair.home("pass")
    with work(monkeypatch) as seen:
        pair.gpu("pass")
    assert seen["walked"] < 100
    assert pair.gpu("result = big[5]['a']")
    pair.home("assert result == 5")


@pytest.mark.parametrize("less", [0, 1])
def test_what_is_as_large_as_the_bound_is_not_packed_to_find_that_out(pair, monkeypatch, less):
    bound = pair.side.side.settings.small_bytes
    pair.home(f"import numpy as np\nhuge = np.zeros({bound - less}, 'u1')")
    with work(monkeypatch) as seen:
        pair.gpu("pass")
    assert ("huge" in seen["packed"]) == bool(less)


def test_what_was_put_away_comes_back_without_its_bytes(pair):
    held_by_both(pair)
    pair.gpu("pass")
    assert pair.side.side.ledger.withheld == {"big"}
    pair.gpu("m = len(big)")  # in a row of GPU cells too
    assert pair.last.bytes < 1000
    assert pair.side.side.ledger.withheld == set()
    pair.home("assert m == 6000")


@pytest.mark.parametrize(
    ("change", "then"),
    [
        ("big[3]['a'] = -1", "assert big[3]['a'] == -1 and len(big) == 6000"),
        ("big = big + [0]", "assert len(big) == 6001"),
        ("big = 5", "assert big == 5"),
        ("row = big[3]; row['a'] = -1", "assert big[3] is row and row['a'] == -1"),
        ("other = big", "assert other is big"),
        ("other = big; del big", "assert len(other) == 6000"),
        ("del big[10:]", "assert [d['a'] for d in big] == list(range(10))"),
    ],
)
@pytest.mark.parametrize("between", [[], ["pass"], ["pass", "pass"]])
def test_what_home_changed_while_it_was_put_away_is_seen(pair, change, then, between):
    held_by_both(pair)
    pair.gpu("pass")
    pair.home(change)
    for cell in between:
        pair.gpu(cell)
    pair.gpu(then)
    pair.home(then)


def test_a_name_that_was_put_away_can_be_bound_and_deleted_beside_the_gpu(pair):
    held_by_both(pair)
    pair.home("big[0]['a'] = 'home'")
    pair.gpu("pass")
    pair.gpu("big = ['gpu']")
    pair.home("assert big == ['gpu']")
    pair.gpu("del big")
    pair.home("assert 'big' not in globals()")


def test_what_was_agreed_on_and_is_bound_again_replaces_what_home_made_of_it(pair):
    held_by_both(pair)
    pair.home("big += [3]")
    pair.gpu(MANY)
    pair.home("assert len(big) == 6000")


def test_part_of_what_was_left_out_is_one_with_it_when_a_cell_changes_it(pair):
    held_by_both(pair)
    pair.home("row = big[3]")
    pair.gpu("pass")
    pair.gpu("row['a'] = 'gpu'")
    pair.home("assert big[3] is row and row['a'] == 'gpu'")
    pair.gpu("assert big[3] is row and row['a'] == 'gpu'")


def test_what_a_thread_beside_the_gpu_may_change_is_not_put_away(pair):
    held_by_both(pair)
    pair.gpu(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def later(mine):\n    go.wait(); mine.append('more'); done.set()\n"
        "threading.Thread(target=later, args=(big,)).start()"
    )
    pair.home("pass")
    pair.gpu("pass")
    assert pair.side.side.ledger.withheld == set()
    pair.gpu("go.set(); done.wait()")
    pair.home("assert big[-1] == 'more'")


def test_what_a_function_reads_stays_where_it_may_be_called_at_any_time(pair):
    pair.home(MANY + "\ndef total(): return len(big)")
    pair.gpu("n = total()")
    pair.home("pass")
    pair.gpu("pass")
    assert pair.side.side.ledger.withheld == set()


def test_what_arrives_is_not_packed_again_where_both_sides_pack_alike(pair, monkeypatch):
    pair.home("pass")
    pair.gpu(MANY + "\nm = 5\nname = 'x'")
    with work(monkeypatch) as seen:
        pair.home("total = sum(d['a'] for d in big) + m")
    assert seen["packed"].isdisjoint({"big", "m", "name"})
    with work(monkeypatch) as seen:
        pair.gpu("big[0]['a'] += 1; k = m")
    assert pair.last.bytes < 1000  # home's own look finds it as it came
    pair.home("assert big[0]['a'] == 1 and total == sum(range(6000)) + 5")


@pytest.mark.parametrize(
    "value",
    [
        "[{'names': 1, 'units': 2}, 'names']",
        "[('a', 1), ('a', 1), {'big': 'big'}, 'n', '']",
        "[1.5, None, True, 2**80, b'', b'x', b'xy', 'x' * 70000]",
        "[[], [[]], {}, (), ((),), bytearray(b'ab')]",
        "['é', 'a' + chr(0xdc80), 'same'] * 3",
        "'text'",
        "2**90",
        "-0.0",
        "1j",
    ],
)
def test_what_both_sides_pack_alike_is_the_same_without_a_look(pair, value):
    """Were it not, what nobody changed would travel again."""
    pair.home("pass")
    pair.gpu(f"big = {value}")
    pair.home("seen = repr(big)")
    pair.gpu("k = repr(big)")
    assert "big" not in pair.last.moved
    pair.home("assert seen == k")
    assert "big" not in pair.last.moved


@pytest.mark.parametrize(
    ("read", "walks"), [("extra", [{"many", "work"}, {"extra"}]), ("many", [{"many", "work"}])]
)
def test_what_a_cell_touched_is_walked_from_once(monkeypatch, read, walks):
    ns = {"many": [[n] for n in range(10)], "extra": [1]}
    exec(f"def work(): return {read}", ns)
    side = Side("a", ns, {"__builtins__"}, TransferSettings())
    walked = []
    survey = side.survey

    def walk(names, check=None):
        walked.append(set(names))
        return survey(names, check)

    monkeypatch.setattr(side, "survey", walk)
    names, found = touched_names(side, {"work", "many"}, {"extra"})
    assert names == sorted(set.union(*walks))
    assert walked == walks
    plan(side, Wanted(), names=names, survey=found)
    assert len(walked) == (1 if len(walks) == 1 else 3), "one walk is what the plan goes on with"


def test_who_shared_a_value_with_a_touched_name_is_walked_from_with_it():
    """A model and its optimiser: one walk, which the plan goes on with."""
    ns, there = {"model": [1, 2], "other": [3]}, {}
    ns["optimiser"] = {"of": ns["model"]}
    near, far = Side("a", ns, (), TransferSettings()), Side("h", there, (), TransferSettings())
    shipment = plan(near, Wanted(everything=True))
    header, blobs = shipment.encode()
    acknowledge(near, shipment, far.receive(Incoming.decode(header, [bytearray(b) for b in blobs])))
    names, found = touched_names(near, {"model"}, set())
    assert names == ["model", "optimiser"]
    assert found is not None
    assert {name for group in found.groups for name in group.names} == set(names)


def test_the_roots_of_a_group_are_gone_through_once_however_many_units_are_held_of_it(monkeypatch):
    side = Side("a", {"value": 1}, (), TransferSettings())
    units = {f"o{number}": [number] for number in range(100)}
    side.registry.borrowed.keep(units, lambda: True)
    roots = [name_root("value"), name_root("gone"), *map(unit_root, units)]
    side.ledger.agree_alike(roots, b"digest", {}, 0, b"")
    calls = []

    def counted(roots):
        calls.append(roots)
        return names_of(roots)

    monkeypatch.setattr(kept, "names_of", counted)
    assert side.kept.units({"value"}) == set(units)
    assert side.kept.units({"other"}) == set()
    assert side.kept.partners_of_lost() == {"value"}
    assert len(calls) == 3


def test_the_size_of_what_is_packed_is_counted_once_for_all_of_its_roots(monkeypatch):
    shared = [1]
    side = Side("a", {f"name{n}": [shared] for n in range(50)}, (), TransferSettings())
    survey = side.survey()
    (group,) = survey.groups
    counted = []
    size = Packed.nbytes.fget
    monkeypatch.setattr(Packed, "nbytes", property(lambda self: counted.append(1) or size(self)))
    packed = side.pack(group, survey)
    assert len(counted) == 1
    assert {side.ledger.sizes[root] for root in group.roots} == {packed.nbytes}


def test_a_group_of_many_roots_is_gone_through_once():
    """Each of its roots led to all of them: of thousands of closures a switch took minutes."""
    shared = [1]
    side = Side("a", {f"name{n}": [shared] for n in range(500)}, (), TransferSettings())
    survey = side.survey()
    (found,) = survey.groups
    looked = []

    class Counted(dict):
        def get(self, *args):
            looked.append(args)
            return super().get(*args)

    survey.by_root = Counted(survey.by_root)
    assert side.closure(["name0"], survey, reads=True) == set(found.roots)
    assert len(looked) == 1


def test_the_collector_looks_through_the_notebook_only_for_what_somebody_may_hold(
    pair, monkeypatch
):
    """It goes through all objects of the process, which takes a second in a large notebook."""
    looks, collect = [], gc.collect
    monkeypatch.setattr(gc, "collect", lambda: looks.append(collect()))
    pair.home("class Box: pass\nbox = Box(); box.parts = parts = [1]; box.lazy = (n for n in 'ab')")
    pair.gpu("parts.append(2); box.step = 1")
    pair.home("assert box.parts is parts == [1, 2]")
    assert not looks
    assert not pair.last.notes
    pair.home("import sys; box.parts = [3]; sys.held = box.parts")
    pair.gpu("box = Box(); box.parts = [4]")
    pair.home("assert box.parts == [4]; del sys.held")
    assert looks
