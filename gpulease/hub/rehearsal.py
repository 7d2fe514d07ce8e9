"""``gpulease doctor --hub``: what the guard would say to every server that the hub offers.

Each pod of the profiles, their options and group overrides is built as a spawn would build it,
hooks included.  No server is started and no cluster is asked.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from gpulease.errors import GPULeaseError
from gpulease.hub.guard import Violation

#: For whom the pods are built; in lines it stands for every user.
SAMPLE: Final = "gpuleasesample"


@dataclass(frozen=True)
class Choice:
    """What a person could choose, or is given.

    Attributes:
        words: how an admin knows it.
        options: as the hub would get them.
        groups: of which the person is a member.
    """

    words: str
    options: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rehearsed:
    """One choice and what came of it.

    Attributes:
        choice: which.
        refused: what would give the server a GPU.
        missing: lines that the hub's configuration would have to allow.
        policy: lines that the admission policy would have to allow; it knows the table alone.
        error: why no pod could be built, else "".
    """

    choice: Choice
    refused: tuple[Violation, ...] = ()
    missing: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    error: str = ""


class _Person:
    """A user of the hub, as far as a spawner asks."""

    name = escaped_name = SAMPLE
    id = 0
    url = base_url = f"/user/{SAMPLE}/"

    def __init__(self, groups: Iterable[str]) -> None:
        self.groups = [_Group(name) for name in groups]


@dataclass(frozen=True)
class _Group:
    name: str


def load(file: str) -> Config:
    """Return the hub's configuration.

    Raises:
        GPULeaseError: ``bad_option`` where there is none, or it fails.
    """
    path = Path(file).resolve()
    try:
        found: Config = PyFileConfigLoader(path.name, str(path.parent)).load_config()
    except Exception as error:
        raise GPULeaseError(
            "bad_option",
            f"The hub's configuration {file} cannot be read: {error}",
            next_step="Run this in the hub's pod, where its Secrets and variables are.",
        ) from error
    return found


async def rehearse(config: Config) -> AsyncIterator[Rehearsed]:
    """Yield every choice with what the guard says to its pod.

    Raises:
        GPULeaseError: ``hub_config_invalid`` where the hub's spawner has no guard.
    """
    from gpulease.hub.kubernetes import GPULeaseSpawner

    kind = config.JupyterHub.get("spawner_class")
    if not (isinstance(kind, type) and issubclass(kind, GPULeaseSpawner)):
        raise GPULeaseError(
            "hub_config_invalid",
            f"The hub's spawner is {kind!r}, which has no guard.",
            next_step="Call setup_gpulease(c, ...) after your own settings.",
        )
    spawner = _spawner(kind, config, ())
    try:
        choices = await _choices(spawner)
    except Exception as error:  # noqa: BLE001 - the site's own function
        yield Rehearsed(Choice("profiles"), error=f"profile_list failed: {error!r}")
        choices = [Choice("no profile")]
    await spawner.api.api_client.close()
    for choice in choices:
        yield await _rehearsed(kind, config, choice)


def _spawner(kind: type, config: Config, groups: Iterable[str]) -> Any:
    from jupyterhub import orm

    return kind(
        _mock=True,
        config=config,
        user=_Person(groups),
        orm_spawner=orm.Spawner(name=""),
        events_enabled=False,
    )


async def _choices(spawner: Any) -> list[Choice]:
    """Return each profile, each other choice of its options, and each group's overrides."""
    profiles = spawner.profile_list
    if callable(profiles):
        profiles = profiles(spawner)
        if inspect.isawaitable(profiles):
            profiles = await profiles
    listed = spawner._get_initialized_profile_list(  # noqa: SLF001 - as load_user_options does
        spawner._sorted_dict_values(profiles)  # noqa: SLF001
    )
    found = [Choice("no profile")] if not listed else []
    for profile in listed:
        slug = profile["slug"]
        found.append(Choice(f"profile {slug}", {"profile": slug}))
        for name, option in profile.get("profile_options", {}).items():
            found += [
                Choice(f"profile {slug}, {name} {key}", {"profile": slug, name: key})
                for key in option.get("choices", {})
            ]
    for name, override in spawner.group_overrides.items():
        found.append(Choice(f"group override {name}", groups=tuple(override["groups"])))
    return found


async def _rehearsed(kind: type, config: Config, choice: Choice) -> Rehearsed:
    spawner = _spawner(kind, config, choice.groups)
    try:
        spawner.user_options = dict(choice.options)
        spawner.clear_state()
        await spawner.apply_group_overrides()
        await spawner.load_user_options()
        sent, found = await spawner.gpulease_look(await spawner.get_pod_manifest())
    except Exception as error:  # noqa: BLE001 - the site's own hooks and functions
        return Rehearsed(choice, error=f"its pod could not be built: {error!r}")
    finally:
        await spawner.api.api_client.close()
    known = [each for each in found if each.rule != "not_listed"]
    return Rehearsed(
        choice,
        refused=tuple(known),
        missing=_lines(each.allow for each in found if each.allow),
        policy=_lines(spawner.gpulease_beyond_the_list(sent)),
    )


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.replace(SAMPLE, "*") for line in lines))


def told(rehearsed: Iterable[Rehearsed]) -> list[str]:
    """Return the report, ending with the lines that are missing where some are."""
    report, missing, policy = [], dict[str, None](), dict[str, None]()
    for each in rehearsed:
        words = each.choice.words
        if each.error:
            report.append(f"unknown  {words}: {each.error}")
        elif each.refused:
            report += [f"REFUSED  {words}: {finding}" for finding in each.refused]
        elif each.missing:
            report.append(f"MISSING  {words}: {', '.join(each.missing)}")
        else:
            report.append(f"ok       {words}")
        if not each.refused:
            missing |= dict.fromkeys(each.missing)
            policy |= dict.fromkeys(each.policy)
    if lines := missing | policy:
        report += ["", "Allow in the values of gpulease's chart, if none of it leads to a GPU:"]
        report += ["servers:", "  allow:", *(f"    - {json.dumps(line)}" for line in lines)]
    if missing:
        listed = "".join(f"\n    {line!r}," for line in missing)
        report += ["", "Without the chart, in the hub's configuration:"]
        report += [f"c.GPULeaseSpawner.gpulease_allow += [{listed}\n]"]
    return report
