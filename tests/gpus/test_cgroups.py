"""A process's pod is found in every form that kubelets and runtimes write, and never spoofed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.gpus.agent.cgroups import NODE, Places, pod_of

UID = "12345678-9abc-def0-1234-56789abcdef0"
FLAT = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
CID = "f" * 64

FORMS = {
    "v1 cgroupfs, best effort": f"12:devices:/kubepods/besteffort/pod{UID}/{CID}",
    "v1 cgroupfs, burstable": f"4:cpu,cpuacct:/kubepods/burstable/pod{UID}/{CID}",
    "v1 cgroupfs, guaranteed": f"1:name=systemd:/kubepods/pod{UID}/{CID}",
    "v2 cgroupfs": f"0::/kubepods/burstable/pod{UID}/{CID}",
    "v2 systemd, containerd": "0::/kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{CID}.scope",
    "v2 systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/crio-{CID}.scope",
    "v1 systemd, docker": "11:memory:/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{FLAT}.slice/docker-{CID}.scope",
    "containerd with a systemd path in cgroupfs": "10:devices:/system.slice/containerd.service/"
    f"kubepods-burstable-pod{FLAT}.slice:cri-containerd:{CID}",
    "a cgroup root of the kubelet's own": f"0::/kubelet/kubepods/besteffort/pod{UID}/{CID}",
    "the same by systemd": "0::/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{FLAT}.slice/x.scope",
    "a node that is a container": f"0::/docker/{CID}/kubelet.slice/kubepods-pod{FLAT}.slice/x",
    "from within a private namespace": f"0::/../../kubepods-besteffort-pod{FLAT}.slice/x.scope",
    "one level up": f"0::/../../pod{UID}/{CID}",
    "a group of its own inside": f"0::/kubepods/pod{UID}/{CID}/init.scope",
    "a static pod": f"0::/kubepods/burstable/pod{STATIC}/{CID}",
    "a static pod by systemd": f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/x.scope",
}


@pytest.mark.parametrize("line", FORMS.values(), ids=FORMS.keys())
def test_every_form_names_its_pod(line: str) -> None:
    assert pod_of(line) in {UID, STATIC}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/init.scope",
        "0::/system.slice/kubelet.service",
        f"0::/system.slice/docker-{CID}.scope",
        "0::/user.slice/user-1000.slice/session-1.scope",
        f"0::/machine.slice/libpod-{CID}.scope",
        f"12:devices:/docker/{CID}",
        "0::/kubepods.slice/kubepods-burstable.slice",
        "0::/podcasts/player",
        f"0::/home/my-pod{UID}x",
        "nonsense",
        ":::",
    ],
)
def test_whatever_is_in_no_pod_is_the_nodes(text: str) -> None:
    assert pod_of(text) == NODE


def test_all_lines_of_version_1_agree() -> None:
    lines = [f"{n}:{name}:/kubepods/pod{UID}/{CID}" for n, name in enumerate(("cpu", "pids", "a"))]
    assert pod_of("\n".join([*lines, "0::/"])) == UID
    other = UID.replace("1", "2")
    assert pod_of("\n".join([*lines, f"9:x:/kubepods/pod{other}/c"])) is None


uids = st.uuids().map(str)
classes = st.sampled_from(["", "burstable", "besteffort"])


@given(uids, classes, uids)
def test_only_the_outermost_pod_counts(uid: str, qos: str, spoofed: str) -> None:
    inside = f"/kubepods.slice/kubepods-pod{spoofed.replace('-', '_')}.slice/x.scope"
    part = f"{qos}/" if qos else ""
    assert pod_of(f"0::/kubepods/{part}pod{uid}/{CID}{inside}") == uid
    middle = f"kubepods-{qos}-" if qos else "kubepods-"
    flat = uid.replace("-", "_")
    assert pod_of(f"0::/kubepods.slice/{middle}pod{flat}.slice/cri-{CID}.scope{inside}") == uid


@given(st.text(max_size=300))
def test_nothing_that_a_file_holds_is_a_failure(text: str) -> None:
    found = pod_of(text)
    assert found is None or found == NODE or len(found) in (32, 36)


def test_this_very_process_is_somewhere(tmp_path: Path) -> None:
    import os

    assert Places().place(os.getpid(), 0.0) is not None


def test_a_process_that_ended_is_remembered_for_a_moment(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    file = tmp_path / "77" / "cgroup"
    file.write_text(f"0::/kubepods/pod{UID}/{CID}\n")
    places = Places(tmp_path)
    assert places.place(77, 100.0) == UID
    file.unlink()
    assert places.place(77, 110.0) == UID
    assert places.place(77, 200.0) is None
    assert places.place(78, 200.0) is None


def test_a_number_that_was_given_to_another_process_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    file = tmp_path / "77" / "cgroup"
    file.write_text(f"0::/kubepods/pod{UID}/{CID}\n")
    places = Places(tmp_path)
    places.place(77, 100.0)
    file.write_text("0::/init.scope\n")
    assert places.place(77, 101.0) == NODE
