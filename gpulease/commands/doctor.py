"""``gpulease doctor``: whether an installation is as it should be, and what fixes it.

The hubs and the clock are checked here, the API server in ``providers.kubernetes.checkup``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from gpulease.errors import GPULeaseError

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from gpulease.providers.kubernetes.checkup.pods import Result
    from gpulease.service.settings.application import GPULeaseService
    from gpulease.service.settings.options import KubernetesSettings
    from gpulease.service.settings.reading import FurtherHub

#: Seconds by which two clocks may differ before times on pages confuse.
_CLOCK_MAX = 5.0
_HUB_SECONDS = 10.0
_SHARED = (
    "People's servers share the hub's domain: a page of one can read the lease service's pages as"
    " the person who looks at it."
)
_TRUSTED = "Pages of people's servers are trusted."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--config", metavar="FILE", help="the service's configuration file")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--hub",
        metavar="FILE",
        help="in the hub's pod, with its jupyterhub_config.py: what the guard says to every"
        " profile, and the lines to allow",
    )


def run(arguments: argparse.Namespace, say: Callable[[str], None] = print) -> int:
    """Look at everything; return 1 when something is wrong."""
    if arguments.hub:
        return asyncio.run(_look_at_the_hub(arguments.hub, say, as_json=arguments.json))
    found = asyncio.run(look(arguments.config or "", os.environ))
    for each in found:
        say(json.dumps(asdict(each)) if arguments.json else _line(each))
    return 1 if any(each.state == "wrong" for each in found) else 0


async def _look_at_the_hub(file: str, say: Callable[[str], None], *, as_json: bool) -> int:
    """Say what the guard would say to every server of a hub.

    Raises:
        GPULeaseError: ``bad_option``; ``hub_config_invalid`` for a hub without the guard.
    """
    from gpulease.hub import rehearsal

    with redirect_stdout(sys.stderr):  # the chart's configuration tells what it loads
        config = rehearsal.load(file)
        found = [each async for each in rehearsal.rehearse(config)]
    for line in [json.dumps(asdict(each)) for each in found] if as_json else rehearsal.told(found):
        say(line)
    return 1 if any(each.error or each.refused or each.missing for each in found) else 0


async def look(config_file: str, environment: Mapping[str, str]) -> list[Result]:
    """Return every result; of a service whose configuration says no cluster, what is of its hubs.

    Raises:
        GPULeaseError: ``bad_option``; ``cluster_unreachable`` where the API server does not answer.
    """
    from traitlets.config import Config

    from gpulease.service.settings.application import GPULeaseService
    from gpulease.service.settings.options import KubernetesSettings
    from gpulease.service.settings.reading import read_configuration

    config = read_configuration("--config", config_file) if config_file else Config()
    service = GPULeaseService(config=config)
    here = bool(config_file) and service.provider == "local" and not config.KubernetesSettings
    settings = None if here else KubernetesSettings(config=config)
    hubs, wrong = _read_hubs(service.hubs, environment, settings)
    found = wrong + ([] if settings is None else await _cluster(settings, hubs))
    found.append(await asyncio.to_thread(_hub, environment))
    found.append(await asyncio.to_thread(_runs, environment))
    found += [await asyncio.to_thread(_further_hub, hub) for hub in hubs]
    found.append(_pages(service, environment))
    found += map(_further_pages, hubs)
    return found


async def _cluster(settings: KubernetesSettings, hubs: Sequence[FurtherHub]) -> list[Result]:
    """Return what is of the cluster.

    Raises:
        GPULeaseError: ``bad_option``, ``cluster_unreachable``.
    """
    from gpulease.providers.kubernetes.api.client import ClientError
    from gpulease.providers.kubernetes.api.official import OfficialClient
    from gpulease.providers.kubernetes.checkup.checkup import Installation, examine

    agents = settings.agent_account.partition("/")[0]
    wanted = Installation(settings.pod_settings(), settings.all_namespaces(hubs), agents)
    client = OfficialClient(settings.kubeconfig, settings.context)
    try:
        return [each async for each in examine(client, wanted)]
    except (ClientError, OSError) as error:
        raise GPULeaseError(
            "cluster_unreachable",
            f"The API server does not answer: {error}",
            next_step="Look whether the service account's token is mounted, and the network.",
            status=503,
        ) from error
    finally:
        await client.close()


def _pages(service: GPULeaseService, environment: Mapping[str, str]) -> Result:
    """Whether pages of people's servers share the origin of the lease service's pages.

    Where the configuration leaves it to the service's own environment, another pod's says nothing.
    """
    from gpulease.providers.kubernetes.checkup.pods import Result

    said = service.config.GPULeaseService.get("user_domains")
    if said or (said is None and environment.get("JUPYTERHUB_HOST")):
        return Result("pages", "ok", "Each person's servers have a domain of their own.")
    if service.trusted_servers:
        return Result("pages", "ok", _TRUSTED)
    if said is None and not environment.get("JUPYTERHUB_CLIENT_ID", "").startswith("service-"):
        return Result(
            "pages",
            "unknown",
            "Whether each person's servers have a domain of their own, only the service's own"
            " environment (JUPYTERHUB_HOST) says.",
            "Run this in the service's pod, or set GPULeaseService.user_domains.",
        )
    return Result(
        "pages",
        "warning",
        _SHARED,
        "Set JupyterHub.subdomain_host and GPULeaseService.user_domains, or say that you trust the"
        " pages of all servers (GPULeaseService.trusted_servers).",
    )


def _further_pages(hub: FurtherHub) -> Result:
    """Whether pages of a further hub's servers share the origin of the service's pages there."""
    from gpulease.providers.kubernetes.checkup.pods import Result

    check = f"pages {hub.name}"
    if hub.trusted_servers:
        return Result(check, "ok", _TRUSTED)
    return Result(
        check,
        "warning",
        _SHARED,
        "A further hub cannot have subdomain_host: say that you trust the pages of all its servers"
        " (trusted_servers), or let only people in who trust each other.",
    )


def _hub(environment: Mapping[str, str]) -> Result:
    """Whether the hub can be reached from here, and its clock agrees with ours."""
    from gpulease.providers.kubernetes.checkup.pods import Result

    url = environment.get("JUPYTERHUB_API_URL", "")
    if not url.startswith(("http://", "https://")):
        return Result(
            "hub", "unknown", "JUPYTERHUB_API_URL is not set.", "Run this in the service's pod."
        )
    try:
        with _opened(url, environment) as answer:
            told = answer.headers.get("Date", "")
    except urllib.error.HTTPError as error:
        told = error.headers.get("Date", "")  # an answer all the same
    except OSError as error:
        return Result(
            "hub",
            "wrong",
            f"The hub does not answer at {url}: {error}",
            "Look at hub.networkPolicy.ingress of the chart's values and at the address.",
        )
    if not told:
        return Result("hub", "ok", "The hub answers; it does not tell its time.")
    if sentence := _clocks_apart(told):
        return Result("clock", "wrong", sentence, "Let all nodes follow one time server.")
    return Result("hub", "ok", "The hub answers, and its clock agrees.")


def _clocks_apart(told: str) -> str:
    """Return in words how far a hub's clock (a header ``Date``) is from this one, "" for near."""
    apart = abs((datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds())
    return f"The hub's clock and this one are {apart:.0f} seconds apart." * (apart > _CLOCK_MAX)


def _read_hubs(
    given: Mapping[str, Any], environment: Mapping[str, str], settings: KubernetesSettings | None
) -> tuple[Sequence[FurtherHub], list[Result]]:
    """Return the further hubs that the configuration names, and what is wrong with what it says."""
    from gpulease.providers.kubernetes.checkup.pods import Result
    from gpulease.service.settings.reading import read_hubs

    prefix = environment.get("JUPYTERHUB_SERVICE_PREFIX") or "/services/gpulease/"
    try:
        where = None if settings is None else settings.namespaces
        return read_hubs(given, environment, prefix, where), []
    except GPULeaseError as error:
        return (), [Result("hubs", "wrong", error.sentence, error.next_step)]


def _further_hub(hub: FurtherHub) -> Result:
    """Whether a hub answers, and knows the service's token for what the service needs there."""
    from gpulease.hub.scopes import SERVICE_SCOPES
    from gpulease.providers.kubernetes.checkup.pods import Result

    check = f"hub {hub.name}"
    try:
        with _opened(f"{hub.api_url}/user", {}, hub.token) as answer:
            model, told = json.load(answer), answer.headers.get("Date", "")
    except urllib.error.HTTPError as error:
        sentence = f"The hub answers {error.code} to the service's token."
        step = (
            "Give both the same: service_token in its setup_gpulease, and token_env or token_file."
        )
        return Result(check, "wrong", sentence, step)
    except (OSError, ValueError) as error:
        sentence = f"The hub does not answer at {hub.api_url}: {error}"
        step = "Look whether it runs, and at api_url."
        if isinstance(getattr(error, "reason", error), ssl.SSLError):
            step = (
                "Look at its certificate, and at api_url. A further hub cannot have internal_ssl."
            )
        return Result(check, "wrong", sentence, step)
    named = f"{model.get('kind')} {model.get('name')}"
    if named != f"service {hub.service_name}":
        sentence = f"The token is of {named} there, and its path is {hub.prefix}."
        step = "Let service_name in its setup_gpulease be as prefix says."
        return Result(check, "wrong", sentence, step)
    missing = sorted(set(SERVICE_SCOPES) - set(model.get("scopes") or ()))
    if missing:
        sentence = f"The service may not {', '.join(missing)} there."
        return Result(check, "wrong", sentence, "Let setup_gpulease make its role.")
    if told and (sentence := _clocks_apart(told)):
        return Result(check, "wrong", sentence, "Let all machines follow one time server.")
    return Result(check, "ok", "The hub answers, and knows the service.")


def _runs(environment: Mapping[str, str]) -> Result:
    """Whether the hub knows the service's token, and lets it do what the service needs.

    A hub whose gpulease is of another version may have made another role.
    """
    from gpulease.hub.scopes import SERVICE_SCOPES
    from gpulease.providers.kubernetes.checkup.pods import Result
    from gpulease.service.hubs.api import starts_servers

    url, token = (environment.get(f"JUPYTERHUB_API_{name}", "") for name in ("URL", "TOKEN"))
    if not url.startswith(("http://", "https://")) or not token:
        return Result(
            "runs", "unknown", "JUPYTERHUB_API_URL or JUPYTERHUB_API_TOKEN is not set.",
            "Run this in the service's pod.",
        )  # fmt: skip
    try:
        with _opened(f"{url.rstrip('/')}/user", environment, token) as answer:
            model = json.load(answer)
    except urllib.error.HTTPError as error:
        return Result(
            "runs",
            "wrong",
            f"The hub answers {error.code} to the service's token.",
            "Give hub and service the same token: `service_token` in setup_gpulease, and"
            " JUPYTERHUB_API_TOKEN.",
        )
    except (OSError, ValueError) as error:
        return Result("runs", "unknown", f"The hub does not say what the service may: {error}")
    if missing := sorted(set(SERVICE_SCOPES) - set(model.get("scopes") or ())):
        sentence = f"The service may not {', '.join(missing)} at the hub."
        step = "Install the service's version of gpulease there: setup_gpulease makes its role."
        return Result("runs", "wrong", sentence, step)
    if starts_servers(model):
        return Result("runs", "ok", "Whole notebooks: the service may start their servers.")
    return Result(
        "runs",
        "ok",
        "Whole notebooks are not offered: the service may not start servers.",
        "To offer them: setup_gpulease(c, whole_notebooks=True).",
    )


def _opened(url: str, environment: Mapping[str, str], token: str = "") -> HTTPResponse:
    """Ask the hub, with what ``internal_ssl`` demands.

    Raises:
        OSError: it does not answer, or (``HTTPError``) refuses.
    """
    request = urllib.request.Request(url)  # noqa: S310 - http(s)
    if token:
        request.add_unredirected_header("Authorization", f"token {token}")
    try:
        opened: HTTPResponse = urllib.request.urlopen(  # noqa: S310 - http(s)
            request, timeout=_HUB_SECONDS, context=_internal_tls(environment)
        )
    except urllib.error.HTTPError as error:
        error.close()  # its headers are all that is read of it
        raise
    return opened


def _internal_tls(environment: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return what the service itself shows and trusts under the hub's ``internal_ssl``."""
    names = ("JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_KEYFILE")
    certificate, key = (environment.get(name, "") for name in names)
    if not certificate or not key:
        return None
    found = ssl.create_default_context(cafile=environment.get("JUPYTERHUB_SSL_CLIENT_CA") or None)
    found.load_cert_chain(certificate, key)
    return found


def _line(each: Result) -> str:
    marks = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  ", "unknown": "unknown"}
    mark = marks[each.state]
    text = f"{mark}  {each.check:<13} {each.sentence}"
    return f"{text}\n{'':24}{each.next_step}" if each.next_step else text
