"""What may stand behind ``%%gpu``: parsed into one frozen value.

Pure: text in, ``CellOptions`` or a ``GPULeaseError`` out.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from difflib import get_close_matches

from gpulease.errors import GPULeaseError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
USAGE = (
    "%%gpu [--class NAME] [--count N] [--min-count N] [--at-least 40%] [--nodes N] [--for 30m] "
    "[--wait 5m] [--no-wait] [--else cpu] [--needs memory>=20GiB] [--project NAME] "
    "[--in-quota-only]"
)
#: What ``%gpu`` can do.
COMMANDS = """\
%gpu                         where the lease and each variable stand
%gpu variables               where every variable is
%gpu on | off                run every cell on the GPU / here again (%%cpu: one cell here)
%gpu auto                    run cells that use a GPU library on the GPU, the others here
%gpu request [options]       ask for a GPU without running anything (options as %%gpu)
%gpu keep                    keep an unused GPU a while longer
%gpu upgrade                 move to what you asked for, once it is free: class, more GPUs
%gpu return [--force]        bring everything home and give the GPU back
%gpu restart [--force]       bring everything home, and use a new companion from now on
%gpu fetch NAME...           bring variables home now
%gpu resolve NAME home|gpu   end a conflict: which value stays
%gpu recover [NAME...]       accept the older values of lost variables, of all by default
%gpu config class NAME       this notebook's GPU class (default: the hub's)
%gpu config wait 5m          how long a %%gpu cell waits for a GPU
%gpu config cells auto       which cells run on the GPU: auto, all, none
%gpu config env HF_TOKEN     tokens that GPU cells may have (A,B; none; default: the hub's)
%gpu submit NOTEBOOK [...]   run a whole notebook without you (gpulease submit --help)
%gpu connect local | FILE    use a companion without a hub"""
#: What ``%%gpu?`` shows.
HELP = f"""\
Run this cell on a GPU; asks for one, and waits for it, where there is none yet.

{USAGE}

  --class NAME      a GPU class (%gpu config class NAME: for the whole notebook)
  --count N         the number of GPUs
  --min-count N     start with fewer where there are no more, and give up some rather than all
  --at-least 40%    of a part of a card: go on with so much of it rather than lose it
  --nodes N         divide them among N nodes (see: gpulease launch --help)
  --for 30m         for at most so long
  --wait 5m         wait so long in the queue; the request stays queued after that
  --no-wait         only ask: run the cell again when the GPU is ready
  --else cpu        run here when there is no GPU in time
  --needs DEMANDS   what each GPU must have: memory>=20GiB, cc>=8.0, ecc; several with commas
  --project NAME    charge it to this project of yours (default: the first with budget left)
  --in-quota-only   only from the project's own share, so that no other project takes it back

Variables, functions and imports made here are there; what the cell makes or changes is here
afterwards."""


@dataclass(frozen=True)
class CellOptions:
    """Options of one GPU cell; durations in seconds, None means the policy's default."""

    gpu_class: str | None = None
    count: int | None = None
    seconds: float | None = None
    wait: float | None = None
    no_wait: bool = False
    else_cpu: bool = False
    in_quota_only: bool = False
    needs: str | None = None
    project: str | None = None
    nodes: int | None = None
    min_count: int | None = None
    at_least: int | None = None
    help: bool = False

    def with_defaults(self, given: CellOptions, *, wait: float | None) -> CellOptions:
        """Return these options, with a notebook's own where they say nothing.

        How many GPUs, on how many nodes, and with how few it can go on belong together.
        """
        found = self
        if self.count is None and self.nodes is None:
            found = replace(
                found,
                count=given.count,
                nodes=given.nodes,
                min_count=self.min_count or given.min_count,
                at_least=self.at_least or (None if self.gpu_class else given.at_least),
            )
        return replace(
            found,
            wait=wait if self.wait is None else self.wait,
            else_cpu=self.else_cpu or given.else_cpu,
            seconds=given.seconds if self.seconds is None else self.seconds,
            project=given.project if self.project is None else self.project,
        )

    def of_the_request(self) -> list[str]:
        """Return those given that say what is asked for, as they are typed."""
        named = {
            **_TEXTS,
            **_NUMBERS,
            "--at-least": "at_least",
            "--for": "seconds",
            "--in-quota-only": "in_quota_only",
        }
        return [word for word, field in named.items() if getattr(self, field)]


def bad_option(sentence: str) -> GPULeaseError:
    """Return the refusal for an option line, with the usage as the next step."""
    return GPULeaseError("bad_option", sentence, next_step=f"Usage: {USAGE}")


def parse_duration(text: str) -> float:
    """Return seconds for ``90``, ``30s``, ``5m``, ``1.5h`` or ``1d``; refuse anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise bad_option(f"{text!r} is not a duration such as 90s, 30m or 2h.")
    return float(match[1]) * _UNITS[match[2]]


def parse_options(line: str) -> CellOptions:
    """Parse what follows ``%%gpu`` (or ``%gpu request``).

    Raises:
        GPULeaseError: ``bad_option``, naming what was not understood.
    """
    try:
        words = shlex.split(re.sub(r"(^|\s)#.*", "", line))
    except ValueError as error:
        raise bad_option(f"The options cannot be read: {error}.") from None
    found: dict[str, object] = {}
    position = 0
    while position < len(words):
        word, _, inline = words[position].partition("=")
        position += 1
        if word in _FLAGS:
            found[_FLAGS[word]] = True
        elif word in _VALUES:
            if not inline:
                if position >= len(words):
                    raise bad_option(f"{word} needs a value.")
                inline = words[position]
                position += 1
            found.update(_value(word, inline))
        else:
            near = get_close_matches(word, [*_FLAGS, *_VALUES], 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise bad_option(f"{word!r} is not an option of %%gpu.{meant}")
    return CellOptions(**found)  # type: ignore[arg-type]


_FLAGS = {
    "--no-wait": "no_wait",
    "--in-quota-only": "in_quota_only",
    "--help": "help",
    "-h": "help",
}
_TEXTS = {"--class": "gpu_class", "--needs": "needs", "--project": "project"}
_NUMBERS = {"--count": "count", "--min-count": "min_count", "--nodes": "nodes"}
_VALUES = frozenset((*_TEXTS, *_NUMBERS, "--at-least", "--for", "--wait", "--else"))


def _value(word: str, text: str) -> dict[str, object]:
    if word in _TEXTS:
        return {_TEXTS[word]: text}
    if word in _NUMBERS:
        if not text.isdecimal() or int(text) < 1:
            raise bad_option(f"{word} takes a whole number from 1, not {text!r}.")
        return {_NUMBERS[word]: int(text)}
    if word == "--at-least":
        percent = text.removesuffix("%")
        if not percent.isdecimal() or not 1 <= int(percent) <= 100:
            raise bad_option(f"--at-least takes a percent such as 40%, not {text!r}.")
        return {"at_least": int(percent)}
    if word == "--for":
        return {"seconds": parse_duration(text)}
    if word == "--wait":
        return {"wait": parse_duration(text)}
    if text != "cpu":
        raise bad_option(f"--else takes cpu, not {text!r}.")
    return {"else_cpu": True}
