"""Layers, messages and devices: what needs no cluster."""

import tarfile
from pathlib import Path

import pytest

from testcluster.devices import Devices, Resource, card, default_devices
from testcluster.machine_files import closure
from testcluster.messages import message_classes
from testcluster.packing import Image, Tree, write_archive, write_layer


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    made = Tree()
    made.add("/opt/it/program", program)
    made.write("etc/passwd", "root:x:0:0::/:/bin/sh\n")
    made.link("bin/program", "/opt/it/program")
    made.directory("tmp", 0o1777)
    return made


def test_layer_depends_on_its_contents_alone(tree: Tree, tmp_path: Path) -> None:
    first, second = (write_layer(tree, tmp_path / name) for name in ("a.tar", "b.tar"))
    assert first.digest == second.digest
    tree.write("etc/passwd", "changed")
    assert write_layer(tree, tmp_path / "c.tar").digest != first.digest


def test_layer_holds_directories_modes_and_links(tree: Tree, tmp_path: Path) -> None:
    with tarfile.open(write_layer(tree, tmp_path / "a.tar").path) as archive:
        members = {member.name: member for member in archive}
    assert members["opt/it"].isdir()
    assert members["opt/it/program"].mode == 0o755
    assert members["bin/program"].linkname == "/opt/it/program"
    assert members["tmp"].mode == 0o1777


def test_images_share_a_layer_in_the_archive(tree: Tree, tmp_path: Path) -> None:
    layer = write_layer(tree, tmp_path / "a.tar")
    images = [Image("local.test/a:1", [layer]), Image("local.test/b:1", [layer])]
    write_archive(tmp_path / "images.tar", images)
    with tarfile.open(tmp_path / "images.tar") as archive:
        assert archive.getnames().count(f"{layer.digest}/layer.tar") == 1


def test_messages_are_wire_compatible_and_skip_what_they_do_not_know() -> None:
    full = message_classes(
        "a", {"M": {"name": (1, "string"), "more": (2, "{}"), "n": (3, "int64")}}
    )
    less = message_classes("b", {"M": {"n": (3, "int64")}})
    message = full["M"](name="x", n=7)
    message.more["key"] = "value"
    assert message.SerializeToString().startswith(b"\x0a\x01x\x12")
    assert less["M"].FromString(message.SerializeToString()).n == 7


def test_devices_survive_their_file(tmp_path: Path) -> None:
    devices = default_devices()
    devices.save(tmp_path / "devices.json")
    assert Devices.load(tmp_path / "devices.json") == devices


def test_replicas_of_a_card_have_ids_of_their_own() -> None:
    shared = Resource("nvidia.com/gpu.shared", (card(1),), replicas=2)
    assert shared.ids() == {f"{card(1)}::0": card(1), f"{card(1)}::1": card(1)}


def test_closure_follows_what_a_distribution_needs() -> None:
    assert {"jupyter-server", "tornado", "traitlets"} <= set(closure(["jupyter_server"]))
