"""Checks what a branch changed, in under two minutes: `make quick`.

Format and lint of everything, types, and the tests beside the changed files: a test file itself,
tests/room/test_name.py for gpulease/room/.../name.py where there is one, else the room's folder.
What is compared with is the branch point from `main`, with what is not committed yet.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
#: As `make test` leaves out: what starts processes, sites, browsers and clusters.
WITHOUT = "not processes and not browser and not site and not cluster and not frameworks"


def main(arguments):
    """Run the checks; return the first exit status that is not 0."""
    changed = changed_files()
    python = [name for name in changed if name.endswith(".py") and (ROOT / name).exists()]
    steps = [[BIN / "ruff", "format", "--check", "."], [BIN / "ruff", "check", "."]]
    if python:
        steps += [[BIN / "mypy"], [BIN / "lint-imports", "--no-logo"]]
    if tests := tests_of(changed):
        print("tests: " + " ".join(tests))
        steps.append([BIN / "python", "-m", "pytest", "-q", "-m", WITHOUT, *tests, *arguments])
    for step in steps:
        status = subprocess.call([str(part) for part in step], cwd=ROOT)
        # 5: the tests of these files all belong to the larger suites.
        if status and not (step[2:3] == ["pytest"] and status == 5):
            return status
    return 0


def changed_files():
    """Return the paths that differ from the branch point, and those that git does not know."""
    base = said("git", "merge-base", "HEAD", "main") or "HEAD"
    found = said("git", "diff", "--name-only", base) + "\n"
    found += said("git", "ls-files", "--others", "--exclude-standard")
    return sorted(set(found.split()))


def tests_of(changed):
    """Return the test files and folders that belong to these paths."""
    found = set()
    for name in map(Path, changed):
        if name.parts[0] == "tests" and name.name.startswith("test_") and (ROOT / name).exists():
            found.add(str(name))
        elif name.parts[0] == "gpulease" and name.suffix == ".py" and len(name.parts) > 2:
            named = sorted((ROOT / "tests" / name.parts[1]).rglob(f"test_{name.stem}.py"))
            mirrors = (ROOT / "tests" / up.relative_to("gpulease") for up in name.parents[:-2])
            rooms = [path for path in mirrors if path.exists()][:1]
            found.update(str(path.relative_to(ROOT)) for path in named or rooms)
    folders = {each for each in found if (ROOT / each).is_dir()}
    return sorted(
        each for each in found if not any(str(up) in folders for up in Path(each).parents)
    )


def said(*command):
    """Return what a command prints; nothing where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
