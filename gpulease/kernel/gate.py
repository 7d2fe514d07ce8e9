"""The gate of home cells, and the magics that concern both sides.

Values that a home cell may read are copied back before it runs, or the cell is refused.  A
NameError says where its name lives, and settings made by magics reach the companion.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.parts import Parts
from gpulease.kernel.relay import QueueProgress, say
from gpulease.kernel.route import Route
from gpulease.kernel.tokens import left_out, missing, not_taken
from gpulease.sides import module_files
from gpulease.sides.magics import Magic, enter
from gpulease.transfer.api import Progress, SwitchReport

_NOT_DEFINED = re.compile(r"name '([^']+)' is not defined")


class Gate:
    """Around home cells; main thread only."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._running: list[str] = []
        self._both: dict[str, str] = {}  # settings made so far, for a companion that comes later
        self._told_companion: object = None
        self._said: set[str] = set()  # variables of the environment of which it was said
        self._magics: list[Magic] = []  # made by GPU cells, of functions that are not here yet

    @property
    def running(self) -> str:
        """The text of the home cell that runs now."""
        return self._running[-1] if self._running else ""

    def before(self, way: Route) -> None:
        """Bring home what the cell may read.

        Raises:
            GPULeaseError: why the cell is refused, naming the variable.
        """
        parts = self._parts
        if parts.connected_once:
            parts.link.departure.commit_now()
        if parts.connected_once and way.reads:
            progress = QueueProgress(parts.shell)
            try:
                show = parts.progress_callback(progress)
                report = self._bring(way, show)
            finally:
                progress.clear()
            parts.say_report(report)
        self._magics = enter(parts.shell, self._magics)
        self._running.append(way.body)

    def _bring(self, way: Route, show: Progress) -> SwitchReport:
        parts = self._parts

        def bring() -> SwitchReport:
            with parts.link.noticing_the_dead():
                report = parts.home.before_home_cell(way.reads, progress=show)
                parts.results.before(way.body)
                return report

        try:
            return bring()
        except GPULeaseError as error:
            if error.reason != "companion_gone" or not parts.link.departure.in_order:
                raise
            return bring()  # the lease has ended after its drain: what can be here is here

    def after(self, way: Route, *, failed: bool) -> None:
        """The home cell ended: its settings reach the companion."""
        self._running.pop()
        if self._parts.connected_once and way.reads:
            self._parts.home.after_home_cell(max(1, int(self._parts.shell.execution_count) - 1))
        if not failed:
            self._remember(way.both)
            if way.both and self._parts.by_person:
                self.tell_companion()
            elif way.both:  # a cell there would count as use: the next GPU cell brings it
                self._told_companion = None
            if way.installs:
                self._install_away(way.installs)

    def made_away(self, magics: Iterable[Magic]) -> None:
        """A GPU cell defined these: they are magics here, too, once their functions are home."""
        new = [(kind, name, variable) for kind, name, variable in magics]
        made = {(kind, name) for kind, name, _ in new}
        self._magics = [magic for magic in self._magics if magic[:2] not in made] + new

    def line_magic(self, line: str) -> None:
        """Run one line magic at home, inside the running cell."""
        name, _, rest = line.lstrip("%").strip().partition(" ")
        self._parts.shell.run_line_magic(name, rest.strip(), _stack_depth=2)

    def install(self, installs: tuple[str, ...]) -> None:
        """A GPU cell installs something: home's environment comes first."""
        for line in installs:
            self.line_magic(line)
        self._install_away(installs)

    def both_at_home(self, both: tuple[str, ...]) -> None:
        """A GPU cell set something: home gets it too, or the person reads why not."""
        from IPython.utils.capture import capture_output

        for line in both:
            try:
                with capture_output():  # the companion's output is the one that was shown
                    self.line_magic(line)
            except Exception as error:  # noqa: BLE001 - a magic may raise anything; it is shown
                say(self._parts.shell, f"{line} holds on the GPU, but not here: {error}")
        self._remember(both)

    def tell_companion(self) -> None:
        """Give the settings made so far to a companion that has not got them."""
        parts = self._parts
        if parts.link.attachment is None or not self._both:
            return
        parts.executor.run_silently("\n".join(self._both.values()))

    def fresh_companion(self) -> None:
        """A new companion was attached: it needs the settings before its first cell."""
        if self._parts.link.attachment is not self._told_companion:
            self._told_companion = self._parts.link.attachment
            if not any(line.startswith("%autoreload") for line in self._both.values()):
                self._remember(tuple(module_files.autoreload_lines()))  # of before gpulease
            self.tell_companion()

    def missed_variables(self, source: str) -> str:
        """Say once which variables a GPU cell asked for that are here alone, or ``""``."""
        names = [n for n in left_out(source, os.environ, self._parts.shared) if n not in self._said]
        if not names:
            return ""
        there = f"[n in __import__('os').environ for n in {names!r}]"
        found = ast.literal_eval(self._ask(there) or "[]")
        missed = [name for name, is_there in zip(names, found, strict=False) if not is_there]
        self._said.update(missed)
        return not_taken(missed) if missed else ""

    def explain(self, name: str) -> str:
        """Say why ``name`` is absent here, or ``""``."""
        if not self._parts.connected_once:
            return ""
        note = self._parts.home.explain(name)
        return note.sentence if note is not None else ""

    def explain_reply(self, reply: Mapping[str, Any]) -> str:
        """Say why a name was missed by a GPU cell, or is not on its device, or ``""``."""
        if reply.get("status") == "ok":
            return ""
        if reply.get("ename") != "NameError":
            ename, evalue = str(reply.get("ename", "")), str(reply.get("evalue", ""))
            token = missing(ename, evalue, os.environ, self._parts.shared)
            said = token or numbers_wanted(evalue)
            return said or self._parts.home.explain_error(evalue)
        match = _NOT_DEFINED.search(str(reply.get("evalue", "")))
        if not match or not self._parts.connected_once:
            return ""
        note = self._parts.home.explain_stayed(match[1])
        return note.sentence if note is not None else self.explain(match[1])

    def _remember(self, both: tuple[str, ...]) -> None:
        for line in both:
            # The environment travels with every switch; a later setting replaces an earlier one.
            words = line.split()
            if words[0] != "%env":
                key = " ".join(words[:2])
                self._both.pop(key, None)  # they are made again in this order
                self._both[key] = line

    def _install_away(self, installs: tuple[str, ...]) -> None:
        """Repeat an install on the GPU where that is another environment."""
        parts = self._parts
        if parts.link.attachment is None:
            return
        if self._same_environment():
            parts.executor.run_silently("__import__('importlib').invalidate_caches()")
            return
        say(parts.shell, "Installing on the GPU as well.")
        reply = parts.executor.run_silently("\n".join(installs), 600.0, silent=False)
        if reply is None or reply.get("status") != "ok":
            why = "it took longer than 600 s" if reply is None else reply.get("evalue", "")
            raise GPULeaseError(
                "install_away_failed",
                f"Installed here, but not on the GPU: {why}.",
                next_step="The environment on the GPU may be read-only: ask your admin to add "
                "the package to its image.",
            )

    def _same_environment(self) -> bool:
        import platform

        here = repr((sys.prefix, platform.node()))
        return self._ask("(__import__('sys').prefix, __import__('platform').node())") == here

    def _ask(self, question: str) -> str:
        """Return what an expression shows on the GPU, ``""`` where it gives no answer."""
        asked = {"it": question}
        reply = self._parts.executor.run_silently("", user_expressions=asked) or {}
        found = (reply.get("user_expressions") or {}).get("it", {})
        return str(found.get("data", {}).get("text/plain", ""))


_NOT_A_NUMBER = re.compile(r"""invalid literal for int\(\).*?['"]\s*(GPU|MIG)-""")


def numbers_wanted(evalue: str) -> str:
    """Say how a library gets numbers, or ``""`` where its error is about something else.

    vLLM and DeepSpeed call ``int()`` on each part of ``CUDA_VISIBLE_DEVICES``.
    """
    found = _NOT_A_NUMBER.search(evalue)
    if found is None:
        return ""
    if found[1] == "MIG":
        return (
            "The library expects numbers in CUDA_VISIBLE_DEVICES, and a MIG device has none: it"
            " needs a whole GPU."
        )
    return (
        "The library expects numbers in CUDA_VISIBLE_DEVICES. A GPU class of your site's policy"
        " gives them with `devices_by: index`: ask your admin."
    )
