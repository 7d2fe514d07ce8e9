"""Packs files of this machine into images that containerd imports: layers, config, manifest.

Layers are plain tar files, named by the hash of their bytes.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUFFER = 1 << 20


@dataclass(frozen=True)
class Layer:
    """A tar file and the SHA-256 of its bytes."""

    path: Path
    digest: str


@dataclass
class Tree:
    """What a layer shall hold: each path in the image, with a file of the machine or text."""

    files: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)

    def add(self, target: str, source: Path) -> None:
        self.files[target.lstrip("/")] = source

    def write(self, target: str, text: str | bytes, mode: int = 0o644) -> None:
        content = text.encode("utf-8") if isinstance(text, str) else text
        self.texts[target.lstrip("/")] = (content, mode)

    def link(self, target: str, to: str) -> None:
        self.links[target.lstrip("/")] = to

    def directory(self, target: str, mode: int = 0o755) -> None:
        self.directories[target.lstrip("/")] = mode


def write_layer(tree: Tree, path: Path) -> Layer:
    """Write a tree as a tar file that depends on its contents alone."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(unfinished, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(_all_directories(tree)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, tree.directories.get(name, 0o755)
            archive.addfile(entry)
        for name, source in sorted(tree.files.items()):
            status = source.stat()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
            entry.mtime = int(status.st_mtime)  # Python compares it with its compiled files
            with source.open("rb") as content:
                archive.addfile(entry, content)
        for name, (text, mode) in sorted(tree.texts.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), mode
            archive.addfile(entry, io.BytesIO(text))
        for name, target in sorted(tree.links.items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    unfinished.replace(path)
    return Layer(path=path, digest=_digest(path))


def _all_directories(tree: Tree) -> set[str]:
    found = set(tree.directories)
    for name in (*tree.files, *tree.texts, *tree.links, *tree.directories):
        parts = name.split("/")[:-1]
        found.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    return found


@dataclass(frozen=True)
class Image:
    """A name to import under, the layers from the bottom up, and how a container starts."""

    name: str
    layers: Sequence[Layer]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"

    def config(self) -> bytes:
        """Return the image's configuration as containerd reads it."""
        variables = [f"{key}={value}" for key, value in self.environment.items()]
        document = {
            "architecture": _architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": list(self.command),
                "Env": variables,
                "WorkingDir": self.directory,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{x.digest}" for x in self.layers]},
            "history": [{"created": "1970-01-01T00:00:00Z"} for _ in self.layers],
            "created": "1970-01-01T00:00:00Z",
        }
        return json.dumps(document).encode("utf-8")


def write_archive(path: Path, images: Sequence[Image]) -> None:
    """Write images as one archive that `ctr images import` reads."""
    manifest = []
    layers = {layer.digest: layer.path for image in images for layer in image.layers}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for image in images:
            text = image.config()
            config_name = f"{hashlib.sha256(text).hexdigest()}.json"
            _add(archive, config_name, text)
            names = [f"{layer.digest}/layer.tar" for layer in image.layers]
            manifest.append({"Config": config_name, "RepoTags": [image.name], "Layers": names})
        for digest, layer_path in layers.items():
            archive.add(layer_path, f"{digest}/layer.tar")
        _add(archive, "manifest.json", json.dumps(manifest).encode("utf-8"))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(BUFFER):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of(parts: Iterable[str]) -> str:
    """Return a short key for what a cached layer was made from."""
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()[:16]
