"""What programs fetched for themselves is each machine's own: it is never mirrored."""

from gpulease.mirror.rules import MirrorLimits, Rules, caches
from tests.mirror.pair import pair, tree, write


def test_caches_below_the_directory_are_found_by_variables_and_by_their_usual_places(tmp_path):
    home, work = tmp_path, tmp_path / "work"
    environ = {"HF_HOME": str(work / "models"), "TORCH_HOME": "/elsewhere", "PATH": str(work)}
    assert caches(work, home, environ) == ("models",)
    assert {".cache", ".keras", "work/models"} <= set(caches(home, home, environ))
    assert caches(work / "models", home, environ) == ()  # who works in one wants its files


def test_both_sides_pass_over_the_same():
    rules = Rules(caches=("a/models",))
    assert Rules.from_json(rules.to_json(), MirrorLimits()) == rules
    assert rules.skips("a/models", "models")
    assert not rules.skips("models", "models")


def test_a_models_cache_stays_on_its_own_side(tmp_path, monkeypatch):
    with pair(tmp_path) as two:
        monkeypatch.setenv("HF_HOME", str(two.home / "hf"))
        write(two.home / "hf" / "hub" / "weights", "large")
        write(two.home / "train.py", "x")
        two.sync()
        assert tree(two.away) == {"train.py": b"x"}
        write(two.away / "hf" / "hub" / "weights", "fetched there")
        two.sync()
        assert tree(two.home)["hf/hub/weights"] == b"large"
        assert tree(two.away)["hf/hub/weights"] == b"fetched there"
