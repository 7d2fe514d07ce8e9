"""The second engine with torch: the first one's notebooks, rules and device, on its own pair."""

import pickle
import sys

import pytest
import torch

from gpulease.transfer_next.engine import StageError
from gpulease.transfer_next.side import Side
from tests.frameworks import notebooks, notebooks_torch, standin, test_devices, test_rules
from tests.frameworks.placing import check, each, patterns
from tests.transfer.kinds import empty, open_pair
from tests.transfer_next import pair as next_pair

NOTEBOOKS = {**notebooks.NOTEBOOKS, **notebooks_torch.NOTEBOOKS}
#: One of each kind that is carried in a way of its own.
QUICK = [
    "training", "momentum and a schedule", "losses kept", "numpy larger than its tensor",
    "tied weights", "hooks", "a replaced layer", "kinds of tensors", "sparse", "inference mode",
    "a tensor's own attributes", "persistent workers", "parametrisations", "lazy trained",
    "quantised", "jit trained", "dispatch subclass", "a generator that a loader holds",
    "global switches", "faces of one memory",
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of what they will drop


@pytest.fixture(scope="module")
def eager():
    with open_pair(kind=next_pair.NextPair) as made:
        yield made


@pytest.fixture(scope="module")
def lazy():
    with open_pair({"small_bytes": -1}, kind=next_pair.NextPair) as made:
        yield made


@pytest.fixture
def pair(eager):
    sys.modules["__main__"] = eager.main
    empty(eager)
    return eager


@pytest.mark.parametrize("name", each(NOTEBOOKS, quick=QUICK))
def test_a_notebook_placed_anywhere(name, eager, lazy):
    cells = NOTEBOOKS[name]
    check(cells, patterns(name, len(cells)), (eager, lazy, eager, lazy))


# ---- rules, on a model that was trained on the GPU

RULES = [
    test_rules.test_a_parameter_stays_the_very_object_that_others_hold,
    test_rules.test_a_view_and_a_closure_at_home_see_what_was_written_beside_the_gpu,
    test_rules.test_backward_at_home_says_where_the_graph_is,
    test_rules.test_a_gradient_over_a_value_from_away_is_never_silently_wrong,
    test_rules.test_a_value_of_a_graph_is_no_view_and_takes_in_place_sums,
    test_rules.test_back_beside_the_gpu_the_value_has_its_graph_again,
    test_rules.test_what_home_computed_from_it_has_no_whole_graph_anywhere,
    test_rules.test_a_graph_at_home_over_values_that_did_not_change_still_runs_backward,
    test_rules.test_a_graph_at_home_over_values_that_changed_stops,
    test_rules.test_requires_grad_changes_no_version,
    test_rules.test_a_hook_made_at_home_does_not_replace_one_from_away,
    test_rules.test_the_cpu_generator_is_one,
    test_rules.test_a_seed_counts_when_it_was_set_and_not_when_its_number_changed,
    test_rules.test_deleting_a_loss_at_home_frees_its_graph_before_the_next_cell,
    test_rules.test_a_graph_dies_with_its_companion_and_its_value_stays,
]


def train(pair):
    """Make a model at home, hold its parameters from outside, and train it on the GPU."""
    pair.home(test_rules.HEAD + test_rules.NET)
    pair.home("opt = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)")
    pair.held = list(pair.ns["model"].parameters())
    pair.gpu(test_rules.STEP)
    pair.home("model, opt, loss")
    return pair


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds(pair, rule):
    rule(train(pair))


test_a_graph_written_into_a_view = test_rules.test_a_graph_written_into_a_view_reaches_its_base
test_a_write_to_another_face = (
    test_rules.test_a_write_to_another_face_of_what_a_graph_saved_stops_it
)
test_a_shared_buffer = test_rules.test_a_tensor_and_a_buffer_that_share_memory_are_refused_by_name
test_dlpack = test_rules.test_what_came_by_dlpack_stays_over_the_same_memory


# ---- a device that home has not

ON_DEVICE = [
    test_devices.test_what_is_on_the_device_comes_home_wherever_it_sits_and_goes_back,
    test_devices.test_a_parameter_stays_the_object_that_others_hold_when_its_model_moves,
    test_devices.test_what_home_writes_is_on_the_device_in_the_next_cell,
    test_devices.test_cpu_of_it_is_a_copy_as_it_is_on_the_device,
    test_devices.test_a_model_that_home_moves_to_the_cpu_stays_there,
    test_devices.test_what_home_computes_from_it_is_a_cpu_tensor,
    test_devices.test_unchanged_memory_of_the_device_is_not_sent_and_no_graph_over_it_breaks,
    test_devices.test_losses_of_the_device_in_a_list_come_home_and_have_their_graphs_there,
    test_devices.test_the_device_is_empty_once_names_and_cache_are,
]
BARE = [
    test_devices.test_training_that_changes_sides_gives_what_one_device_gives,
    test_devices.test_sparse_and_small_and_empty_tensors_of_the_device,
    test_devices.test_a_default_device_stays_on_its_side,
    test_devices.test_carrying_takes_little_room_on_the_device,
]


@pytest.fixture(scope="module")
def device_pair():
    """A pair whose companion has a device from the beginning: autograd counts them once."""
    if standin.DEVICE != standin.NAME:
        pytest.skip("of the device that stands in")
    standin.library()
    with open_pair(kind=next_pair.NextPair) as made:
        made.gpu(standin.START)
        yield made


@pytest.fixture
def device(device_pair):
    sys.modules["__main__"] = device_pair.main
    empty(device_pair)
    device_pair.gpu(standin.START)
    return device_pair


@pytest.mark.parametrize("rule", [*ON_DEVICE, *BARE], ids=lambda rule: rule.__name__)
def test_a_rule_of_devices_holds(device, rule):
    if rule in ON_DEVICE:
        device.home(test_devices.MODEL)
        device.held = list(device.ns["model"].parameters())
        device.gpu(f"{test_devices.MOVE}\n{test_devices.STEP}")
        device.home("model, opt, loss, X, y")
    rule(device)


# ---- a commit that fails


def test_a_commit_that_fails_leaves_tensors_as_they_were(monkeypatch):
    home, away = [Side(label, _space(), hidden=set(_space())) for label in "ha"]
    _run(home, "import torch; w = torch.nn.Parameter(torch.ones(3)); b = torch.ones(100_000)")
    _run(home, "v = b[:2]; g = torch.Generator().manual_seed(1); loss = (w * w).sum()")
    _move(home, away)
    _run(away, "w.grad = torch.ones(3); w.note = [1]; b *= 3; torch.rand(1, generator=g)")
    _run(away, "with torch.no_grad(): w.mul_(2); w.requires_grad_(False)")
    kept = home.ns["w"], home.ns["b"], home.ns["v"], home.ns["g"]
    before = _look(home)
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.graph, "increment_version", _fails)
        with pytest.raises((RuntimeError, StageError), match="no room"):
            _move(away, home)
    assert _look(home) == before
    _run(home, "loss.backward(); assert w.grad.tolist() == [2.0] * 3; w.grad = None")
    _move(away, home)
    _run(home, "assert w.tolist() == [2.0] * 3 and v.tolist() == [3.0] * 2 and w.note == [1]")
    assert all(one is home.ns[name] for one, name in zip(kept, "wbvg", strict=True))


def _fails(_tensors):
    raise RuntimeError("no room")


def _space():
    return {"__name__": "__main__", "__builtins__": __builtins__}


def _run(side, source):
    exec(compile(source, "<cell>", "exec"), side.ns)


def _move(start, to):
    parcel = start.pack()
    to.commit(to.stage(pickle.loads(pickle.dumps(parcel, protocol=5))))
    start.acknowledge(parcel)


def _look(side):
    ns = side.ns
    tensors = [ns["w"], ns["b"], ns["v"], ns["loss"]]
    return (
        [(t.tolist(), t.requires_grad, t.grad, t._version, vars(t), t.shape) for t in tensors],
        ns["g"].get_state().tolist(),
    )
