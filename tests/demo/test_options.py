"""The demo's options, ports and notebook."""

import json
import socket
import sys
from pathlib import Path

import pytest

from gpulease.demo import launch, plain
from gpulease.demo.notebook import code_cells, without_gpu
from gpulease.demo.options import DemoOptions, Ports
from gpulease.errors import GPULeaseError
from gpulease.policy.model import TimeOuts


def demo(**changed) -> DemoOptions:
    return DemoOptions(directory=Path("/somewhere"), ports=Ports(1, 2, 3, 4), **changed)


def test_options_survive_the_way_to_the_hub():
    options = demo(gpus=3, idle=1.5, simulate=True)
    assert DemoOptions.from_json(options.to_json()) == options


def test_time_outs_are_ones_that_the_policy_knows():
    assert TimeOuts(**demo(idle=7.0).time_outs()).idle == 7.0


@pytest.mark.parametrize(
    "wrong",
    [{"idle": 0}, {"warning": -1}, {"warm_up": -1}, {"gpus": 0}, {"gpus": 65}, {"memory": 0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_numbers_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(GPULeaseError) as refused:
        demo(**wrong).check()
    assert refused.value.reason == "bad_option"
    assert next(iter(wrong)).replace("_", "-") in refused.value.sentence


def test_ports_are_free_and_different():
    ports = launch.choose_ports(0)
    chosen = [ports.public, ports.hub, ports.proxy, ports.service]
    assert len(set(chosen)) == 4
    for port in chosen:
        socket.create_server(("127.0.0.1", port)).close()  # as servers bind theirs


def test_no_other_process_is_given_a_chosen_port_before_the_hub_binds_it():
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = launch.choose_ports(0)
    for port in (ports.public, ports.hub, ports.proxy, ports.service):
        assert not int(first) <= port <= int(last)


def test_a_taken_port_is_refused_by_its_number():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(GPULeaseError, match=str(port)) as refused:
            launch.choose_ports(port)
    assert refused.value.reason == "port_taken"


def test_the_notebook_trains_beside_the_gpu_and_evaluates_at_home():
    cells = code_cells()
    away = [cell.number for cell in cells if cell.on_gpu]
    after = [cell.number for cell in cells if cell.after_reclaim]
    assert len(away) >= 3
    assert len(after) == 1
    assert any(number < after[0] for number in away)
    assert any(number > after[0] for number in away)
    assert "predict" in cells[after[0] - 1].source
    assert not cells[after[0] - 1].on_gpu


def test_the_notebook_seeds_globally():
    source = "\n".join(cell.source for cell in code_cells())
    assert "np.random.seed(" in source
    assert "random_state" not in source


def test_a_plain_notebook_has_no_gpu_line():
    for cell in code_cells():
        assert "%gpu" not in without_gpu(cell)
        compile(without_gpu(cell), f"cell {cell.number}", "exec")


def test_the_plain_kernel_is_told_no_number_of_threads_that_the_hubs_servers_have_not(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OF_THE_USER", "1")
    environment = plain._environment()
    assert "OMP_NUM_THREADS" not in environment
    assert environment["OF_THE_USER"] == "1"


def test_cells_of_another_notebook_can_be_read():
    text = json.dumps(
        {"cells": [{"cell_type": "code", "metadata": {}, "source": ["%%gpu\n", "1"]}]}
    )
    (cell,) = code_cells(text)
    assert cell.on_gpu
    assert without_gpu(cell) == "1"


def test_the_commands_of_this_environment_are_found_first(monkeypatch):
    monkeypatch.setenv("PATH", "/elsewhere")
    programs = str(Path(sys.executable).parent)
    assert launch._environment(demo())["PATH"].split(":") == [programs, "/elsewhere"]
