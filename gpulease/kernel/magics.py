"""``%gpu``: what a person types to see and steer the lease.

Each command of the table is a few calls on the session.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gpulease.errors import GPULeaseError
from gpulease.kernel.options import COMMANDS as HELP
from gpulease.kernel.options import parse_duration, parse_options
from gpulease.kernel.status import (
    NO_HUB,
    NO_LEASE,
    connection_line,
    lease_lines,
    state_word,
    sticky_line,
    variable_lines,
)
from gpulease.kernel.tokens import parse_shared
from gpulease.kernel.wait import no_service
from gpulease.protocol.service import LeaseView
from gpulease.runs import submission
from gpulease.sizes import size_text

if TYPE_CHECKING:
    from gpulease.kernel.session import Session

#: Rows in the table of ``%gpu``; what a person has to act on is always among them.
SHOWN_VARIABLES = 10
#: States of a request that has brought no GPU yet.
_NOT_GRANTED = ("queued", "starting")
#: Seconds after which the service has heard that a cell of this kernel is over: its companion's
#: words come in batches.
_HEARD_SECONDS = 15.0


def line_magic(session: Session, text: str) -> None:
    """Run ``%gpu TEXT``.

    Raises:
        GPULeaseError: an unknown command or bad arguments, with what can be typed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _usage(f"The line cannot be read: {error}.") from None
    if not words:
        print(status(session))  # noqa: T201 - a magic's answer is its output
        return
    if {"--help", "-h"} & set(words):
        words = ["help", *(["submit"] if words[0] == "submit" else [])]
    command = COMMANDS.get(words[0])
    if command is None:
        near = get_close_matches(words[0], COMMANDS, 1)
        meant = f"Did you mean %gpu {near[0]}? " if near else ""
        raise GPULeaseError(
            "bad_command",
            f"%gpu has no command {words[0]!r}.",
            next_step=f"{meant}%gpu help lists the commands.",
        )
    answer = command(session, words[1:])
    if answer:
        print(answer)  # noqa: T201


def _usage(sentence: str) -> GPULeaseError:
    return GPULeaseError("bad_command", sentence, next_step="%gpu help lists the commands.")


def status(session: Session) -> str:
    """Return the text of ``%gpu``: the lease, then the variables."""
    lease, attachment = session.link.mine(), session.link.attachment
    if lease is not None:
        lines = lease_lines(lease)
    elif attachment is not None:
        lines = [connection_line(attachment.view)]
    else:
        lines = [NO_LEASE if session.link.bus is not None else NO_HUB]
    if lease is not None or attachment is not None or session.which != "none":
        lines.append(sticky_line(session.which))
    lines += session.files.lines()
    if session.connected_once and (why := session.home.slow_because()):
        lines.append(f"Large values travel slowly: {why}.")
    if session.connected_once:
        variables = variable_lines(session.home.status(), SHOWN_VARIABLES)
        lines += ["", *variables] if variables else []
    return "\n".join(lines)


def _variables(session: Session, words: list[str]) -> str:
    _none(words)
    if not session.connected_once:
        return "All variables are in your notebook: it has not used a GPU yet."
    return "\n".join(variable_lines(session.home.status())) or "There are no variables yet."


def _status(session: Session, words: list[str]) -> str:
    _none(words)
    return status(session)


def _turn(session: Session, which: str) -> None:
    link = session.link
    if which != "none" and link.bus is None and link.attachment is None and link.target is None:
        raise no_service()
    session.turn(which)


def _on(session: Session, words: list[str]) -> str:
    _none(words)
    _turn(session, "all")
    return "Every cell now runs on the GPU. %gpu off ends that, %%cpu is the exception cell."


def _auto(session: Session, words: list[str]) -> str:
    _none(words)
    _turn(session, "auto")
    return (
        "Cells that use a GPU library now run on the GPU and say why, the others run here."
        " %gpu off ends that, %%gpu and %%cpu choose for one cell."
    )


def _off(session: Session, words: list[str]) -> str:
    _none(words)
    _turn(session, "none")
    return "Cells run here again; %%gpu runs one cell on the GPU."


def _request(session: Session, words: list[str]) -> str:
    lease = session.waiter.ask(parse_options(shlex.join(words)))
    return f"{lease['gpu_class']}: {state_word(lease)}. {session.waiter.describe(lease)}"


def _keep(session: Session, words: list[str]) -> str:
    _none(words)
    lease = _held(session)
    assert session.link.bus is not None
    kept: LeaseView = session.link.bus.call("keep", {"lease_id": lease["id"]})
    session.link.notices.withdraw()
    return f"Kept. {kept['sentence']}"


def _upgrade(session: Session, words: list[str]) -> str:
    _none(words)
    lease = _held(session)
    assert session.link.bus is not None
    enough = time.monotonic() + _HEARD_SECONDS
    while True:
        try:
            changed: LeaseView = session.link.bus.call("upgrade", {"lease_id": lease["id"]})
        except GPULeaseError as error:
            if error.reason != "cell_running" or time.monotonic() >= enough:
                raise
            session.inbox.wait_for(lambda: False, time.monotonic() + 1)
        else:
            return changed["sentence"]


def _return(session: Session, words: list[str]) -> str:
    force = words == ["--force"]
    _none([] if force else words)
    mine = session.link.mine()
    if session.link.attachment is None:
        if mine is None:
            raise _nothing(session)
        if mine["state"] in _NOT_GRANTED:
            session.link.end(mine)
            return "Your request for a GPU was withdrawn."
    lost = session.link.departure.give_back(force=force)
    session.link.target = None
    but = f", but not what could not come: {', '.join(lost)}" if lost else ""
    return f"The GPU was released. Your variables are here{but}."


def _restart(session: Session, words: list[str]) -> str:
    force = words == ["--force"]
    _none([] if force else words)
    if session.link.attachment is None:
        away = session.link.mine() is not None or session.link.target is not None
        raise (
            _nothing(session)
            if not away
            else GPULeaseError(
                "no_companion",
                "Nothing of this notebook runs on the GPU.",
                next_step="The next GPU cell starts a companion.",
            )
        )
    lost = session.link.departure.restart(force=force)
    but = f", but not what could not come: {', '.join(lost)}" if lost else ""
    return (
        f"The companion has ended. Your variables are here{but}. The next GPU cell starts a new "
        f"one, which imports modules again."
    )


def _fetch(session: Session, words: list[str]) -> str:
    names = _names(session, words)
    report = session.home.fetch(names)
    session.say_report(report)
    return f"Home: {', '.join(report.moved) or 'they were already'} ({size_text(report.bytes)})."


def _resolve(session: Session, words: list[str]) -> str:
    if len(words) != 2 or words[1] not in ("home", "gpu"):
        raise _usage("%gpu resolve takes a NAME and home or gpu.")
    session.home.resolve(words[0], words[1])
    return f"{words[0]}: the value of {'home' if words[1] == 'home' else 'the GPU'} stays."


def _recover(session: Session, words: list[str]) -> str:
    if not session.connected_once:
        raise _nothing(session)
    found, others = session.home.recover(words)
    if not found and others:
        raise GPULeaseError(others[0].reason, " ".join(note.sentence for note in others))
    accepted = ", ".join(found) or "none, for none is lost that has one"
    return "\n".join([f"Older values accepted: {accepted}.", *(n.sentence for n in others)])


def _config(session: Session, words: list[str]) -> str:
    if len(words) % 2:
        raise _usage("%gpu config takes pairs: class NAME, wait 5m, cells auto, env HF_TOKEN.")
    caveat = ""
    for name, value in zip(words[::2], words[1::2], strict=True):
        if name == "class":
            caveat = "" if value == "default" else session.waiter.offered(value)
            session.default_class = None if value == "default" else value
        elif name == "wait":
            session.default_wait = None if value == "default" else parse_duration(value)
        elif name == "cells":
            if value not in ("auto", "all", "none", "default"):
                raise _usage("%gpu config cells takes auto, all or none.")
            _turn(session, "none" if value == "default" else value)
            session.kept_cells = "" if value == "default" else value
        elif name == "env":
            session.shared = None if value == "default" else parse_shared(value)
        else:
            raise _usage(f"%gpu config has no setting {name!r}.")
    wait = "the default" if session.default_wait is None else f"{session.default_wait:.0f} s"
    shared = ", ".join(session.shared) or "none"
    session.changed()
    found = (
        f"class: {session.default_class or 'the default'}; wait: {wait}; cells: {session.which}; "
        f"tokens taken: {shared}"
    )
    return f"{found}\n{caveat}".rstrip()


def _connect(session: Session, words: list[str]) -> str:
    if len(words) != 1:
        raise _usage("%gpu connect takes one target: local, or a connection file.")
    session.connect(words[0])
    attachment = session.link.attachment
    assert attachment is not None
    # In the place of the progress: what were cleared would stay in the notebook as an empty output.
    session.waiter.status.show(
        f"Connected to a companion ({attachment.view['gpu_class']}, process "
        f"{attachment.opened['pid']}). %%gpu runs a cell there."
    )
    return ""


def _submit(session: Session, words: list[str]) -> str:
    bus = session.link.bus
    if bus is None:
        raise no_service()
    wanted = submission.read(words, Path.cwd(), parse_duration)
    return submission.said(bus.call("submit", wanted)["items"], submission.advice(wanted))


def _help(session: Session, words: list[str]) -> str:  # noqa: ARG001
    return submission.HELP if words == ["submit"] else HELP


def _none(words: list[str]) -> None:
    if words:
        raise _usage(f"This command takes no {words[0]!r}.")


def _names(session: Session, words: list[str]) -> list[str]:
    if not words:
        raise _usage("Name the variables.")
    if not session.connected_once:
        raise _nothing(session)
    return words


def _held(session: Session) -> LeaseView:
    lease = session.link.mine()
    if lease is None and session.link.attachment is not None:
        raise GPULeaseError(
            "no_lease",
            "This companion was connected without a hub and has no time limit.",
            next_step="%gpu return gives it back.",
        )
    if lease is None:
        raise _nothing(session)
    return lease


def _nothing(session: Session) -> GPULeaseError:
    way = "%%gpu asks for one." if session.link.bus is not None else "%gpu connect local is a way."
    return GPULeaseError("no_lease", "This notebook has no GPU lease.", next_step=way)


COMMANDS: dict[str, Callable[[Session, list[str]], str]] = {
    "on": _on, "off": _off, "auto": _auto, "request": _request, "keep": _keep, "return": _return,
    "restart": _restart, "upgrade": _upgrade,
    "fetch": _fetch, "resolve": _resolve, "recover": _recover, "config": _config,
    "connect": _connect, "help": _help, "variables": _variables,
    "status": _status, "submit": _submit,
}  # fmt: skip
