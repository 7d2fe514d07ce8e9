"""The benchmarks' arithmetic: medians, percentiles, ratios and aims."""

import pytest

from benchmarks.__main__ import main, table
from benchmarks.measure import Aim, Variants, percentile, report, summary
from benchmarks.namespace import Counts, source
from benchmarks.simulate import _interval
from benchmarks.transfer import changes, rivals, whole


def test_percentiles_lie_between_their_neighbours():
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert percentile(values, 0.0) == 1.0
    assert percentile(values, 0.5) == 3.0
    assert percentile(values, 0.95) == pytest.approx(4.8)
    assert percentile([7.0], 0.95) == 7.0


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_a_summary_names_rounds_median_p95_best_and_worst():
    assert summary([2.0, 1.0, 3.0]) == {
        "rounds": 3,
        "median": 2.0,
        "p95": pytest.approx(2.9),
        "best": 1.0,
        "worst": 3.0,
    }


def test_ratios_go_by_medians():
    variants = Variants({"ours": [1.0, 1.0, 9.0], "theirs": [4.0, 4.0, 4.0]})
    assert variants.times_faster("ours", "theirs") == 4.0


def test_a_block_that_fails_leaves_no_figure():
    variants = Variants()
    with pytest.raises(RuntimeError), variants.timed("broken"):
        raise RuntimeError
    assert variants.seconds == {}


@pytest.mark.parametrize(
    ("value", "at_most", "met"), [(2.0, True, True), (3.0, True, False), (3.0, False, True)]
)
def test_an_aim_is_met_or_not(value, at_most, met):
    assert Aim("speed", value, 2.5, at_most=at_most).as_dict()["met"] is met


def test_a_report_can_be_read_by_a_person():
    result = report("cell", Variants({"pass": [0.010, 0.020]}), [Aim("pass", 15.0, 10.0)])
    text = "\n".join(table(result))
    assert "15.0" in text
    assert "NOT MET" in text
    assert "cores" in text


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["cell", "--rounds", "0"], ["cell", "--scale", "2"]]
)
def test_what_cannot_be_measured_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "error" in capsys.readouterr().err


def test_the_scaled_namespace_holds_what_it_says():
    counts = Counts.scaled(0.001)
    namespace: dict = {}
    exec(source(counts), namespace)
    assert sum(name.startswith("array_") for name in namespace) == counts.arrays
    assert namespace["array_0"].nbytes == counts.array_bytes
    assert namespace["frame"].to_numpy().nbytes == counts.frame_bytes
    assert len(namespace["records"]) == counts.dicts
    assert len(namespace["points"]) == counts.instances
    assert Counts().dicts == 100_000


@pytest.mark.parametrize("kind", whole.kinds())
def test_each_kind_that_travels_has_the_bytes_it_is_compared_by(kind):
    namespace: dict = {}
    exec(whole.START.format(size=2**20), namespace)
    for number in (0, 1):
        exec(whole.kinds()[kind].format(n=number), namespace)
        value = namespace["value"]
        kept = value.to_numpy() if kind == "frame" else value
        assert kept.nbytes == 2**20
    exec(whole.CHANGE, namespace)
    assert namespace["value"] is not value, "what comes home is a new value"


def test_a_bare_socket_carries_all_of_it():
    assert 0 < whole.socket_seconds(2**20 + 5) < 60


def test_the_graph_that_drains_has_the_objects_it_says():
    namespace: dict = {}
    exec(changes._GRAPH.format(count=10, n=3), namespace)
    assert namespace["graph"][7] == [7, "10"]


@pytest.mark.parametrize("rival", [rivals.IPYPARALLEL, rivals.DASK])
def test_what_a_rival_runs_is_python(rival):
    for cell in (rival.start, rival.send, rival.change, rival.bring, rival.end):
        compile(cell, rival.module, "exec")


def test_a_report_of_parts_can_be_read_by_a_person():
    parts = {
        name: report(f"whole: {name}", Variants({name: [0.010]}), []) for name in ("start", "end")
    }
    text = "\n".join(table({"benchmark": "whole", "parts": parts, "machine": {}}))
    assert text.index("whole: start") < text.index("whole: end")


def test_only_what_has_parts_takes_one(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["cell", "--part", "start"])
    assert stopped.value.code == 2
    assert "parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "places"), [(20, (6, 15)), (12, (3, 10)), (6, (1, 6)), (2, (1, 2))]
)
def test_the_interval_of_a_median_is_that_of_the_binomial_tables(count, places):
    assert _interval([float(n) for n in range(count, 0, -1)]) == places
