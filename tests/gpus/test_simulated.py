"""Simulated devices: idle when free, a gap when leased and silent, else what was reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gpulease.gpus.simulated import SimulatedProbe


def test_devices_have_the_given_name_and_memory_and_say_simulated() -> None:
    infos = SimulatedProbe(2, name="Toy", memory=5).inventory()
    assert [(i.uuid, i.name, i.memory, i.simulated) for i in infos] == [
        ("SIM-0000", "Toy", 5, True),
        ("SIM-0001", "Toy", 5, True),
    ]
    assert SimulatedProbe(0).inventory() == []


def test_a_free_device_is_unused() -> None:
    probe = SimulatedProbe(1)
    probe.feed("SIM-0000", 0.9, datetime.now(UTC))
    assert [each.utilisation for each in probe.sample()] == [0.0]


def test_a_leased_device_without_reports_is_a_gap() -> None:
    probe = SimulatedProbe(1)
    probe.lease("SIM-0000")
    assert [(each.utilisation, each.gap) for each in probe.sample()] == [(None, "no_report")]
    probe.feed("SIM-0000", 0.9, datetime.now(UTC) - timedelta(seconds=60))
    assert [(each.utilisation, each.gap) for each in probe.sample()] == [(None, "no_report")]
    probe.release("SIM-0000")
    assert probe.sample()[0].utilisation == 0.0


def test_every_report_of_a_batch_is_a_sample_and_the_last_one_stays() -> None:
    probe = SimulatedProbe(1)
    probe.lease("SIM-0000")
    now = datetime.now(UTC)
    for second, use in ((3, 0.1), (2, 7.0), (1, 0.0)):
        probe.feed("SIM-0000", use, now - timedelta(seconds=second))
    assert [each.utilisation for each in probe.sample()] == [0.1, 1.0, 0.0]
    assert [each.utilisation for each in probe.sample()] == [0.0]
