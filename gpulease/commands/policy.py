"""``gpulease policy check``: what is wrong with a policy document, what it would change for whom.

Two documents are compared without a service; a running service also says what would happen at
once, and to whom.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from gpulease.commands.service_client import client_of
from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.consequences import audience
from gpulease.policy.document.edit import differences
from gpulease.policy.model import PolicyDocument
from gpulease.system.terminal import say


def check(arguments: argparse.Namespace, read: Callable[[Path], str]) -> int:
    """Print every mistake, else what the document would change; return 0, 2 where one is wrong.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``, ``unreadable_file``.
    """
    text = read(arguments.file)
    if not _is_valid(arguments.file, text):
        return 2
    after = document.parse(text)
    classes = ", ".join(each.name for each in after.classes)
    say(f"{arguments.file}: valid. Classes: {classes}; default {after.default_class}.")
    if arguments.against is not None:
        old = read(arguments.against)
        if not _is_valid(arguments.against, old):
            return 2
        _say_changes(*_compared(document.parse(old), after))
    elif arguments.service or arguments.url:
        client = client_of(arguments.url)
        found = asyncio.run(client.call("POST", "policy/check", {"text": text}))
        if not found["valid"]:
            raise GPULeaseError(
                "bad_policy",
                "The service reads this document in another way: is it of another version?",
                numbers={"findings": found["findings"]},
            )
        _say_changes(found["effects"], found["changes"])
    return 0


def _is_valid(file: Path, text: str) -> bool:
    findings = document.check(text)
    for finding in findings:
        level = "" if finding.level == "error" else f"{finding.level}: "
        say(f"{file}:{finding.line}:{finding.column}: {level}{finding.message}")
        say(f"    {finding.next_step}")
    return not any(finding.level == "error" for finding in findings)


def _compared(before: PolicyDocument, after: PolicyDocument) -> tuple[list[str], list[str]]:
    return audience(before, after), differences(before, after)


def _say_changes(effects: Sequence[str], changes: Sequence[str]) -> None:
    if not changes:
        say("It changes nothing.")
        return
    if effects:
        say("\nWhat it means, and for whom:")
        say("\n".join(f"  {each}" for each in effects))
    say("\nWhat differs:")
    say("\n".join(f"  {each}" for each in changes))
