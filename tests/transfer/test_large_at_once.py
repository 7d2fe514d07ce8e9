"""What is large and what the coming home cell reads is looked at and brought in one go."""

BY_NEED = {"small_bytes": -1, "eager_bytes": -1}


def test_a_large_value_that_a_home_cell_reads_comes_with_what_changed(new_pair, monkeypatch):
    pair = new_pair(settings=BY_NEED)
    pair.attach()
    # What comes without a cell may come at any moment, so between these two as well.
    monkeypatch.setattr(pair.side._behind, "wake", lambda *late, **how: None)
    pair.gpu("big = list(range(100)); other = [1]")
    asked = []
    ask = pair.side.peer.ask
    monkeypatch.setattr(
        pair.side.peer, "ask", lambda kind, *a, **k: asked.append(kind) or ask(kind, *a, **k)
    )
    pair.home("total = sum(big)")
    assert pair.ns["total"] == 4950
    assert asked == ["collect"]
    assert "other" not in pair.ns
    pair.home("other")
    assert asked == ["collect", "fetch"]
