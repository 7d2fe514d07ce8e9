"""Which files of this machine make a Python with packages: what the images are packed from."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testcluster.packing import Tree

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PREFIX = "usr/local"
ENVIRONMENT = "opt/venv"
PACKAGES = f"{ENVIRONMENT}/lib/{VERSION}/site-packages"
REPOSITORY = Path(__file__).resolve().parents[1]

_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "pydoc_data",
}
_TOOLS = (
    *("sh", "cat", "sleep", "ls", "env", "id", "true", "false", "mkdir", "rm", "cp", "mv", "ln"),
    *("touch", "head", "tail", "grep", "kill", "df", "mount", "tar", "wc", "tr", "date", "stat"),
)


def python(tree: Tree) -> None:
    """Add the interpreter, its standard library, a few tools and the libraries they load."""
    executable = Path(sys.executable).resolve()
    tree.add(f"{PREFIX}/bin/{VERSION}", executable)
    tree.link(f"{PREFIX}/bin/python3", VERSION)
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    for source in _files_below(library):
        tree.add(f"{PREFIX}/lib/{VERSION}/{source.relative_to(library)}", source)
    for name in _TOOLS:
        found = shutil.which(name, path="/bin:/usr/bin")
        if found:
            tree.add(f"bin/{name}", Path(found).resolve())
    tree.link("usr/bin/env", "/bin/env")
    tree.write("etc/passwd", _PASSWD)
    tree.write("etc/group", "root:x:0:\nusers:x:100:\nnogroup:x:65534:\n")
    tree.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    tree.directory("tmp", 0o1777)
    tree.directory("home/jovyan", 0o777)
    tree.write(f"{ENVIRONMENT}/pyvenv.cfg", f"home = /{PREFIX}/bin\n")
    tree.link(f"{ENVIRONMENT}/bin/python", f"/{PREFIX}/bin/{VERSION}")
    tree.link(f"{ENVIRONMENT}/bin/python3", "python")
    libraries(tree)


_PASSWD = """\
root:x:0:0:root:/root:/bin/sh
jovyan:x:1000:100:jovyan:/home/jovyan:/bin/sh
nobody:x:65534:65534:nobody:/tmp:/bin/sh
"""


def iptables(tree: Tree) -> None:
    """Add the machine's iptables with what it loads."""
    program = Path(shutil.which("iptables") or "/usr/sbin/iptables").resolve()
    tree.add("usr/bin/iptables", program)
    for module in (Path("/usr/lib") / _multiarch() / "xtables").glob("lib[xi][tp]*_*.so"):
        tree.add(f"usr/lib/{_multiarch()}/xtables/{module.name}", module)
    libraries(tree)


def packages(tree: Tree, names: Iterable[str]) -> None:
    """Add installed distributions: their modules, programs and data files."""
    for name in names:
        for entry in metadata.distribution(name).files or ():
            target, source = entry.as_posix(), Path(str(entry.locate()))
            if not source.is_file() or source.suffix == ".pth" or _needless(target):
                continue
            depth = target.count("../")
            if depth == 0:
                tree.add(f"{PACKAGES}/{target}", source)
            elif target.startswith("../../../bin/"):
                _add_program(tree, source)
            elif target.startswith("../../../"):
                tree.add(f"{ENVIRONMENT}/{target.removeprefix('../../../')}", source)
    libraries(tree)


def _needless(target: str) -> bool:
    """Tell what no pod of the tests reads: the hub's own pages, stubs, the packages' tests.

    Half of all files: each costs time when an image is unpacked.
    """
    return "share/jupyterhub/" in target or "/third_party/" in target or "/tests/" in target


def _add_program(tree: Tree, source: Path) -> None:
    content = source.read_bytes()
    if content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]:
        rest = content.split(b"\n", 1)[1]
        content = f"#!/{ENVIRONMENT}/bin/python\n".encode() + rest
    tree.write(f"{ENVIRONMENT}/bin/{source.name}", content, 0o755)


def libraries(tree: Tree) -> None:
    """Add the shared libraries that the tree's programs and modules load from the machine."""
    objects = [path for name, path in tree.files.items() if _is_elf_name(name)]
    own = {path.resolve() for path in tree.files.values()}
    for path in sorted(_loaded(objects)):
        if path.resolve() in own or "site-packages" in path.parts:
            continue
        target = str(path) if path.name.startswith("ld-") else f"lib/{_multiarch()}/{path.name}"
        tree.add(target, path.resolve())


def _is_elf_name(name: str) -> bool:
    return ".so" in Path(name).name or "/bin/" in f"/{name}"


def _loaded(objects: list[Path]) -> set[Path]:
    found: set[Path] = set()
    for start in range(0, len(objects), 100):
        done = subprocess.run(
            ["ldd", *map(str, objects[start : start + 100])],
            capture_output=True,
            text=True,
            check=False,  # it fails when one of them is static
        )
        for match in re.finditer(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE):
            found.add(Path(match[1]))
    return found


def _multiarch() -> str:
    return str(sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")


def _files_below(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir():
            if path.name in _LEFT_OUT or path.name.endswith("-packages"):
                continue
            if path.name.startswith("config-"):
                continue
            yield from _files_below(path)
        elif path.is_file() and path.suffix != ".a" and ".opt-" not in path.name:
            yield path


def closure(roots: Iterable[str]) -> list[str]:
    """Return the installed distributions that these requirements need, by name."""
    waiting = [Requirement(root) for root in roots]
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            names.add(name)
            for text in metadata.distribution(name).requires or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    waiting.append(inner)
    return sorted(names)


def project_requirements(*extras: str) -> list[str]:
    """Return gpulease's own requirements with these extras, without gpulease itself."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    optional = project["optional-dependencies"]
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        found += [each for each in optional.get(extra, ()) if not each.startswith("gpulease")]
    return found


def versions(names: Iterable[str]) -> list[str]:
    """Return `name==version` of installed distributions: the key of a layer made from them."""
    return [f"{name}=={metadata.version(name)}" for name in names]
