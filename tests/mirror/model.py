"""Two directories and what they agreed on, in memory: what a plan's steps do to them."""

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from gpulease.mirror.entries import DIRECTORY, Entry, Kind, Manifest, below, parents, same
from gpulease.mirror.plan import Plan, Step, plan

NAMES = ("a", "b", "a/c", "a/d", "a/c/e", "b/c")
FILES = st.builds(
    lambda mark, x: Entry(Kind.FILE, mark, 1, x), st.sampled_from("123"), st.booleans()
)
THINGS = st.one_of(
    FILES,
    FILES,
    st.just(DIRECTORY),
    st.builds(lambda mark: Entry(Kind.LINK, mark), st.sampled_from("cd")),
    st.just(Entry(Kind.LEFT_OUT, "too_large", 9)),
)


def whole(found: Mapping[str, Entry]) -> Manifest:
    """Return a manifest in which every path lies in directories."""
    result: Manifest = {}
    for path in sorted(found):
        if all(result.get(parent) == DIRECTORY for parent in parents(path)):
            result[path] = found[path]
    return result


TREES = st.dictionaries(st.sampled_from(NAMES), THINGS, max_size=6).map(whole)


class Model:
    """The state of one mirror."""

    def __init__(self, base: Manifest, home: Manifest, away: Manifest) -> None:
        self.base = {p: e for p, e in base.items() if e.kind is not Kind.LEFT_OUT}
        self.home, self.away = dict(home), dict(away)

    def plan(self) -> Plan:
        return plan(self.base, self.home, self.away)

    def round(self, keep: Callable[[], bool] = lambda: True) -> Plan:
        """Do what a plan says; ``keep`` says of each step whether the interruption comes later."""
        made = self.plan()
        if made.aside:
            for path, name in made.aside.items():
                if not keep():
                    return made
                self.rename(path, name)
            return made
        for path, entry in made.agreed.items():
            self.settle(path, entry)
        steps = [(self.away, s) for s in made.away] + [(self.home, s) for s in made.home]
        removals = [(t, s) for t, s in steps if removes(s)]
        for tree, step in sorted(removals, key=lambda each: -each[1].path.count("/")):
            if not keep():
                return made
            assert not any(below(path, step.path) for path in tree), step
            assert same(tree.pop(step.path), step.expected) or tree is self.away
            if step.then is None:
                self.settle(step.path, None)
        creations = [(t, s) for t, s in steps if s.then is not None]
        for tree, step in sorted(creations, key=lambda each: each[1].path.count("/")):
            if not keep():
                return made
            assert all(tree.get(p) == DIRECTORY for p in parents(step.path)), step
            tree[step.path] = step.then
            if keep():  # else the acknowledgement is lost
                self.settle(step.path, step.then)
        return made

    def settle(self, path: str, entry: Entry | None) -> None:
        if entry is None:
            self.base.pop(path, None)
        else:
            self.base[path] = entry

    def rename(self, path: str, name: str) -> None:
        for old in [p for p in self.away if p == path or below(p, path)]:
            self.away[name + old.removeprefix(path)] = self.away.pop(old)
            self.base.pop(old, None)
        self.base.pop(path, None)


def removes(step: Step) -> bool:
    """Whether what stands there goes before anything else may stand there."""
    if step.expected is None:
        return False
    if step.then is None:
        return True
    return (step.expected.kind is Kind.DIRECTORY) != (step.then.kind is Kind.DIRECTORY)


def versions(tree: Manifest, base: Manifest) -> set[tuple[str, bool]]:
    """Return the files' contents that this side has and did not have when both agreed."""
    return {
        (e.mark, e.executable)
        for p, e in tree.items()
        if e.kind is Kind.FILE and not same(e, base.get(p))
    }


def contents(tree: Manifest) -> set[tuple[str, bool]]:
    return {(e.mark, e.executable) for e in tree.values() if e.kind is Kind.FILE}


def left_out(tree: Manifest) -> list[str]:
    return [p for p, e in tree.items() if e.kind is Kind.LEFT_OUT]
