"""Use as Parquet: what `gpulease usage` writes is read back, beside its own CSV and JSON."""

import asyncio
import csv
import json
from datetime import date

import pytest

from gpulease.cli import main as command_line
from gpulease.commands.usage import _pyarrow, _write_parquet
from tests.service.conftest import hub  # noqa: F401 - a fixture
from tests.service.kit import active_lease, running

pyarrow = pytest.importorskip("pyarrow")
ROW = {"day": "2026-03-02", "person": "=ann", "hours": 1.5, "gpu_hours": 3.0, "estimated": True}
TYPES = {
    "project": "string", "person": "string", "class": "string", "day": "date32[day]",
    "hours": "double", "gpu_hours": "double", "estimated": "bool",
}  # fmt: skip
POLICY = """\
pools: {simulated-gpu: {}}
classes: {gpu: {pool: simulated-gpu, price: 2}}
projects: {phys: {group: cs101}, all: {everyone: true}}
time_outs: {warm_up: 0}
"""


def read(file):
    """Return a file's table."""
    from pyarrow import parquet

    return parquet.read_table(file)


async def test_parquet_csv_and_json_say_the_same(hub, tmp_path, monkeypatch, capsys):  # noqa: F811
    first = tmp_path / "policy.yaml"
    first.write_text(POLICY)
    async with running(hub, tmp_path, first_policy_file=first) as site:
        # Two people, two projects, and nothing that still runs while it is asked three times.
        for name in ("stu", "eve"):
            lease, channel, supervisor = await active_lease(site, name)
            await site.client(site.hub.server_token(name)).end(lease["id"], "enough")
            await supervisor.next("drain")
            await supervisor.say({"type": "drained", "result": "done"})
            await site.lease(lease["id"], "ended")
            for each in (channel, supervisor):
                await each.close()
        monkeypatch.setenv("GPULEASE_TOKEN", site.hub.admin_token())
        asked = ["usage", "--by", "project,person,class,day", "--zone", "Pacific/Kiritimati"]
        asked += ["--url", site.url]
        parquet_file, csv_file = tmp_path / "use.parquet", tmp_path / "use.csv"
        for out in (["--parquet", str(parquet_file)], ["--csv", str(csv_file)], ["--json"]):
            assert await asyncio.to_thread(command_line, [*asked, *out]) == 0
    told = json.loads(capsys.readouterr().out)
    table = read(parquet_file)
    assert {name: str(table.schema.field(name).type) for name in table.column_names} == TYPES
    rows = table.to_pylist()
    assert [(row["project"], row["person"]) for row in rows] == [("all", "eve"), ("phys", "stu")]
    items = told["items"]
    assert rows == [
        {**{name: item[name] for name in TYPES}, "day": date.fromisoformat(item["day"])}
        for item in items
    ]
    with csv_file.open(newline="") as lines:
        written = list(csv.DictReader(lines))
    assert written == [{name: str(row[name]) for name in TYPES} for row in rows]
    # Hours are of one device, and what they cost is at the class's price: twice as much.
    units = {
        field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in table.schema
    }
    assert (units["hours"], units["gpu_hours"]) == ("hours of one GPU", "GPU-hours at its price")
    assert all(row["gpu_hours"] == pytest.approx(2 * row["hours"], abs=1e-4) for row in rows)
    # Which time it is of stands in the file, as in the answer; its end is when it was asked.
    said = {name.decode(): each.decode() for name, each in table.schema.metadata.items()}
    assert (said["since"], said["zone"]) == (told["since"], "Pacific/Kiritimati")
    assert told["since"] < said["until"] <= told["until"]


def test_a_name_is_written_as_it_is_and_a_mark_as_a_truth(tmp_path):
    _write_parquet(_pyarrow(), tmp_path / "use.parquet", list(ROW), [ROW], {})
    found = read(tmp_path / "use.parquet")
    assert found.to_pylist() == [{**ROW, "day": date(2026, 3, 2)}]


def test_no_use_is_a_table_without_rows_of_the_same_columns(tmp_path):
    _write_parquet(_pyarrow(), tmp_path / "none.parquet", list(ROW), [], {})
    found = read(tmp_path / "none.parquet")
    assert found.num_rows == 0
    assert [str(each.type) for each in found.schema] == [TYPES[name] for name in ROW]
