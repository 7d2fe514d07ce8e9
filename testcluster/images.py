"""The images of the test cluster: what is in each, made from this machine's files and cached.

`local.test/pause:1` sleeps; `local.test/gpulease:1` is a student's image, with JupyterHub's
single-user server, which lease pods use too; `local.test/gpulease-service:1` adds what the
service and the node agent need.
"""

import compileall
import configparser
import io
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from py_compile import PycInvalidationMode

from testcluster.build import cache_directory
from testcluster.configuration import PAUSE_IMAGE
from testcluster.machine_files import (
    ENVIRONMENT,
    PACKAGES,
    PREFIX,
    REPOSITORY,
    closure,
    iptables,
    packages,
    project_requirements,
    python,
    versions,
)
from testcluster.packing import Image, Layer, Tree, digest_of, write_layer

GPULEASE_IMAGE = "local.test/gpulease:1"
SERVICE_IMAGE = "local.test/gpulease-service:1"
SOURCES = Path(__file__).parent / "c"
_STUDENT = ("numpy",)
_KEPT_LAYERS = 8

_VARIABLES = {
    "PATH": f"/{ENVIRONMENT}/bin:/{PREFIX}/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",
}


def pause_program() -> Path:
    """Return the pause program, compiled once."""
    return compiled("pause", "-static")


def compiled(name: str, *flags: str) -> Path:
    """Compile a C source of this folder once and return the program."""
    source = SOURCES / f"{name}.c"
    key = digest_of([source.read_text(encoding="utf-8"), *flags])
    program = cache_directory() / "c" / key / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f".{name}.{os.getpid()}")
        command = ["gcc", "-O2", "-Wall", "-Werror", *flags, "-o", str(unfinished), str(source)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        unfinished.replace(program)
    return program


def images(*, with_service: bool = False, tag: str = "1") -> list[Image]:
    """Return the images with their layers, made now where the cache lacks them.

    `tag` names another build of gpulease's images beside the ones that run.
    """
    student = closure([*project_requirements("lab", "hub"), *_STUDENT])
    interpreter = _cached("python", [sys.version, sys.executable], python)
    bottom = [interpreter, _cached("student", versions(student), lambda t: packages(t, student))]
    own = _cached("gpulease", _own_sources(), _own)
    found = [
        Image(PAUSE_IMAGE, [_pause()], ["/pause"]),
        Image(_tagged(GPULEASE_IMAGE, tag), [*bottom, own], (), _VARIABLES, "/home/jovyan"),
    ]
    if with_service:
        wanted = closure(project_requirements("lab", "hub", "service", "kubernetes", "agent"))
        more = sorted(set(wanted) - set(student))
        layer = _cached("service", versions(more), lambda t: packages(t, more))
        name = _tagged(SERVICE_IMAGE, tag)
        found.append(Image(name, [*bottom, layer, own], (), _VARIABLES, "/tmp"))
    return found


def network_tools(name: str) -> Image:
    """Return an image with iptables, called as a chart calls its own."""
    layer = _cached("iptables", [str(Path("/usr/sbin/iptables").resolve()), "1"], iptables)
    return Image(name, [layer], (), {"PATH": "/usr/bin"})


def _tagged(name: str, tag: str) -> str:
    return f"{name.rpartition(':')[0]}:{tag}"


def _cached(name: str, key: list[str], fill: Callable[[Tree], None]) -> Layer:
    directory = cache_directory() / "layers"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{digest_of(key)}.tar"
    note = path.with_suffix(".sha256")
    if path.exists() and note.exists():
        os.utime(path)
        return Layer(path=path, digest=note.read_text(encoding="ascii"))
    tree = Tree()
    fill(tree)
    layer = write_layer(tree, path)
    note.write_text(layer.digest, encoding="ascii")
    _forget_old(directory, name)
    return layer


def _forget_old(directory: Path, name: str) -> None:
    """Keep only the layers used last: each change of a source makes a new one."""
    found = sorted(directory.glob(f"{name}-*.tar"), key=lambda path: -path.stat().st_mtime)
    for path in found[_KEPT_LAYERS:]:
        path.unlink(missing_ok=True)
        path.with_suffix(".sha256").unlink(missing_ok=True)


def _pause() -> Layer:
    program = pause_program()

    def fill(tree: Tree) -> None:
        tree.add("pause", program)

    return _cached("pause", [program.parent.name], fill)


def _own_sources() -> list[str]:
    """Return the key of gpulease's own layer: every file's name and content."""
    folders = [REPOSITORY / name for name in ("gpulease", "shared-data", "docs")]
    paths = [path for folder in folders for path in folder.rglob("*")]
    chosen = sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    own = [(REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), sys.version]
    for path in chosen:
        own += [str(path.relative_to(REPOSITORY)), path.read_bytes().hex()]
    return own


def _own(tree: Tree) -> None:
    """Add gpulease as an installation would, compiled, for a pod cannot keep what it compiles."""
    stage = cache_directory() / f"stage-{os.getpid()}"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(REPOSITORY / "gpulease", stage / "gpulease", ignore=ignored)
    shutil.copytree(REPOSITORY / "docs", stage / "gpulease" / "service" / "pages" / "documentation")
    try:
        compileall.compile_dir(
            stage,
            quiet=1,
            stripdir=str(stage),
            prependdir=f"/{PACKAGES}",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        for source in stage.rglob("*"):
            if source.is_file():
                name = f"{PACKAGES}/{source.relative_to(stage)}"
                tree.write(name, source.read_bytes())
    finally:
        shutil.rmtree(stage)
    shared = REPOSITORY / "shared-data"
    for source in shared.rglob("*"):
        if source.is_file():
            tree.add(f"{ENVIRONMENT}/{source.relative_to(shared)}", source)
    _metadata(tree)


def _metadata(tree: Tree) -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    name, version = project["name"], project["version"]
    points = configparser.ConfigParser(delimiters=("=",))
    points["console_scripts"] = project["scripts"]
    points.read_dict(project.get("entry-points", {}))
    entries = io.StringIO()
    points.write(entries)
    folder = f"{PACKAGES}/{name}-{version}.dist-info"
    tree.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    tree.write(f"{folder}/entry_points.txt", entries.getvalue())
    program = (
        f"#!/{ENVIRONMENT}/bin/python\n"
        "import sys\nfrom gpulease.cli import main\nsys.exit(main())\n"
    )
    tree.write(f"{ENVIRONMENT}/bin/gpulease", program, 0o755)
