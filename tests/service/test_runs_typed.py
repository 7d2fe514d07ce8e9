"""``gpulease submit`` and ``gpulease runs`` as a person types them, against a running service."""

import asyncio
import json
import re

import pytest

from gpulease.cli import main
from tests.helpers import wait_for_async
from tests.service.test_runs import Runner, up

NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "source": ["epochs = 1\n"], "metadata": {}, "outputs": []},
        {"cell_type": "code", "source": ["print(epochs)"], "metadata": {}, "outputs": []},
    ]
}


@pytest.fixture
def typed(site, tmp_path, monkeypatch, capsys):
    """What ``gpulease WORDS`` ends with and prints, typed where train.ipynb lies."""
    (tmp_path / "train.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPULEASE_SERVICE_URL", site.url)
    monkeypatch.setenv("GPULEASE_TOKEN", site.hub.page_token("stu"))

    async def run(*words):
        status = await asyncio.to_thread(main, words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


async def test_a_notebook_is_submitted_looked_at_and_cancelled(typed):
    assert (await typed("runs"))[:2] == (0, "There are no runs.\n")
    status, said, _ = await typed("submit", "train.ipynb", "-p", "epochs=20", "--for", "2h")
    assert status == 0
    found = re.match(r"Submitted: run (\w+)\. .* in train\.run-\1\.ipynb\.", said)
    assert found is not None
    assert "The notebook sets epochs itself, after the parameters" in said
    run = found[1]
    shown = json.loads((await typed("runs", "--json", "show", run))[1])
    assert (shown["parameters"], shown["seconds"]) == ({"epochs": 20}, 7200)
    assert "train.ipynb" in (await typed("runs"))[1]
    assert "Submitted." in (await typed("runs", "log", run))[1]
    assert (await typed("runs", "cancel", run))[0] == 0
    assert "cancel" in (await typed("runs", "show", run))[1].lower()


async def test_an_array_has_a_run_for_each_number(typed):
    status, said, _ = await typed("submit", "train.ipynb", "--array", "1-3")
    assert status == 0
    assert said.startswith("Submitted: 3 runs, array ")
    listed = json.loads((await typed("runs", "--json"))[1])
    assert {each["index"] for each in listed} == {1, 2, 3}
    array = listed[0]["array"]
    assert array in (await typed("runs"))[1], "--after and cancel take it"
    shown = (await typed("runs", "show", array))[1]
    assert all(each["id"] in shown for each in listed)
    assert (await typed("runs", "cancel", array))[0] == 0
    listed = json.loads((await typed("runs", "--json"))[1])
    assert [each["outcome"] or "cancelling" for each in listed].count("cancelled") >= 1
    assert not any(each["state"] == "waiting" for each in listed)


@pytest.mark.parametrize(
    ("state", "outcome", "status"), [("succeeded", "succeeded", 0), ("notebook_error", "failed", 1)]
)
async def test_who_waits_reads_how_it_ended(site, typed, state, outcome, status):
    waiting = asyncio.create_task(typed("submit", "train.ipynb", "--wait", "--json"))
    client = site.client(site.hub.page_token("stu"))

    async def there():
        return (await client.call("GET", "runs?mine=1"))["items"]

    (run,) = await wait_for_async(there, 30, "the run")
    try:
        await up(site, run)
        runner = Runner(site, run)
        await runner.say(cells=2)
        await runner.say(state, cells=2, done=1)
    finally:
        await client.call("DELETE", f"runs/{run['id']}", {})  # who waits does so to the end
        ended, said, _ = await waiting
    assert ended == status
    assert [each["outcome"] for each in json.loads(said)] == [outcome]


REFUSED = [
    (("submit", "gone.ipynb"), "There is no notebook"),
    (("submit", "train.ipynb", "--for", "soon"), "--for: "),
    (("submit", "train.ipynb", "--array", "9-1"), "array"),
    (("submit", "train.ipynb", "-p", "epochs"), "epochs"),
    (("submit", "train.ipynb", "-p", "a=1", "-p", "a=2"), "a is given twice"),
    (("submit", "train.ipynb", "--array", "1-2", "-p", "array_index=1"), "-p array_index"),
    (("submit", "train.ipynb", "--for", "0"), "a GPU for no time is none"),
    (("submit", "train.ipynb", "--class", "moon"), "moon"),
    (("submit", "train.ipynb", "--after", "0123456789ab"), "no run 0123456789ab"),
    (("runs", "show", "0123456789ab"), "no run 0123456789ab"),
    (("runs", "cancel", "../leases"), "nothing at this address"),
]


async def test_what_cannot_be_is_refused_in_a_sentence(typed):
    for words, why in REFUSED:
        status, said, wrong = await typed(*words)
        assert (status, said) == (2, "")
        assert wrong.startswith("gpulease: ")
        assert why in wrong
        assert "Traceback" not in wrong
