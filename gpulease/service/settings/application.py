"""The lease service's options, and the plain values that come of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

from traitlets import (
    Bool,
    CaselessStrEnum,
    Dict,
    Enum,
    Float,
    Integer,
    TraitError,
    Unicode,
    default,
)
from traitlets.config import Application

from gpulease import __version__
from gpulease.errors import GPULeaseError
from gpulease.service.settings.options import KubernetesSettings, Options
from gpulease.service.settings.reading import (
    failing_file,
    listening_at,
    listening_tls,
    read_configuration,
    read_hubs,
    size_option,
    smtp_login,
    web_address,
)
from gpulease.store import Ages

_ALIASES = {
    "database": "GPULeaseService.database_url",
    "gpus": "GPULeaseService.gpus",
    "gpu-name": "GPULeaseService.gpu_name",
    "gpu-memory": "GPULeaseService.gpu_memory",
    "policy": "GPULeaseService.policy_file",
    "first-policy": "GPULeaseService.first_policy_file",
    "url": "GPULeaseService.service_url",
    "config": "GPULeaseService.config_file",
    "provider": "GPULeaseService.provider",
    "log-level": "GPULeaseService.log_name",
}


class GPULeaseService(Application):
    """Leases GPUs to the notebook servers of a JupyterHub."""

    name = "gpulease-service"
    description = (
        "The lease service.  It runs as the hub's managed service, or on its own with the same"
        " JUPYTERHUB_* environment."
    )
    version = __version__
    classes = [KubernetesSettings]  # noqa: RUF012 (traitlets reads it)
    aliases = Dict(_ALIASES)
    flags = Dict(
        {
            "simulate": (
                {"GPULeaseService": {"simulate": True}},
                "Offer simulated GPUs even where a driver is.",
            )
        }
    )

    config_file = Unicode("", help="A traitlets configuration file.").tag(config=True)
    database_url = Unicode(
        "sqlite:///gpulease.sqlite",
        help="SQLAlchemy URL of the service's own database; SQLite or PostgreSQL.",
    ).tag(config=True)
    key_file = Unicode(
        "",
        help="The service's own secret, made at the first start and kept: beside a SQLite database"
        " (its name and .key), else gpulease.key; with Kubernetes none is needed.",
    ).tag(config=True)
    service_url = Unicode(
        help="Where to listen, such as http://127.0.0.1:10101; default: what the hub says.  "
        "With https the certificate is that of JUPYTERHUB_SSL_CERTFILE and JUPYTERHUB_SSL_KEYFILE."
    ).tag(config=True)
    gpus = Integer(
        0,
        min=0,
        max=1024,
        help="How many simulated GPUs to offer on a machine without an NVIDIA driver.",
    ).tag(config=True)
    gpu_name = Unicode(
        "Simulated GPU", help="What simulated GPUs are called: several names with commas, in turn."
    ).tag(config=True)
    gpu_memory = Unicode("16GiB", help="Memory of a simulated GPU, such as 16GiB.").tag(config=True)
    simulate = Bool(False, help="Offer simulated GPUs even where a driver is.").tag(config=True)
    policy_file = Unicode(
        "", help="A pinned policy document: its changes apply, and it is never written to."
    ).tag(config=True)
    first_policy_file = Unicode(
        "", help="The first version of the policy, for a database that has none yet."
    ).tag(config=True)
    first_time_outs = Dict(
        help="Time-outs (seconds) of a first policy that is made from the devices found."
    ).tag(config=True)
    park_dir = Unicode(
        "~/.local/share/gpulease/parked",
        help="Where values that cannot return are parked, in the user's own home; empty: nowhere.",
    ).tag(config=True)
    park_limit = Unicode(
        "2GiB", help="How much one person's parked values may take; the rest is reported as lost."
    ).tag(config=True)
    notify_smtp = Unicode(
        "",
        help="Relay for mail about labs and budgets, such as smtp://mail:25 or smtps://mail:465.",
    ).tag(config=True)
    notify_smtp_user = Unicode(
        "", help="Name at that relay, if it needs a login, which is sent encrypted only."
    ).tag(config=True)
    notify_smtp_password_file = Unicode("", help="File with its password, in one line.").tag(
        config=True
    )
    notify_from = Unicode("gpulease@localhost", help="The sender of such mail.").tag(config=True)
    notify_webhook = Unicode(
        "", help="An address to which every such notice is posted as JSON."
    ).tag(config=True)
    park_days = Float(7.0, min=0.01, help="Days after which parked values are removed.").tag(
        config=True
    )
    hub_origin = Unicode(
        "", help="scheme://host of the hub in browsers, where it is not the service's own."
    ).tag(config=True)
    docs_url = Unicode(
        "",
        help="The address of the pages' Help. With a slash at its end it is a copy of this "
        "documentation (make docs). Empty: the service shows this documentation itself.",
    ).tag(config=True)
    user_domains = Bool(
        help="Each person's servers have a domain of their own (JupyterHub.subdomain_host).  Else "
        "their pages share the hub's origin, and the card on the hub's page changes nothing."
    ).tag(config=True)
    trusted_servers = Bool(
        False, help="Trust the pages of people's servers: the card on the hub's page acts anyway."
    ).tag(config=True)
    hubs = Dict(
        help="Further hubs that use these GPUs, by name: each with api_url, token_env (or"
        " token_file), prefix, namespaces and trusted_servers; see docs/admin.md."
    ).tag(config=True)
    tick = Float(1.0, min=0.05, help="Seconds between rounds when nothing happens.").tag(
        config=True
    )
    hub_seconds = Float(10.0, min=0.05, help="Seconds between two looks at the hub's servers.").tag(
        config=True
    )
    lost_seconds = Float(
        15.0,
        min=0.1,
        help="Seconds without any sign of a lease's processes until it counts as lost.",
    ).tag(config=True)
    metrics_url = Unicode(
        help="Where to answer /metrics without a token, such as http://0.0.0.0:9981 (nowhere if "
        "empty).  Only Prometheus should reach it."
    ).tag(config=True)
    connections_max = Integer(
        2000,
        min=10,
        help="Connections open at a time, live channels not counted; the oldest silent one goes.",
    ).tag(config=True)
    request_seconds = Float(
        30.0,
        min=0.1,
        help="Seconds that a request's headers, and then its body, may take to arrive.",
    ).tag(config=True)
    keep_minutes_days = Float(
        Ages.minutes, min=0.1, help="Days after which minutes of evidence become hours."
    ).tag(config=True)
    keep_evidence_days = Float(
        Ages.evidence,
        min=0.1,
        help="Days after which hours of evidence and changes of verdict are removed.",
    ).tag(config=True)
    keep_leases_days = Float(
        Ages.leases,
        min=1.0,
        help="Days after its end at which a lease is removed, with all its transitions.",
    ).tag(config=True)
    keep_runs_days = Float(
        Ages.runs, min=1.0, help="Days after its end at which a run is removed; its output stays."
    ).tag(config=True)
    keep_reservations_days = Float(
        Ages.reservations,
        min=1.0,
        help="Days after the end of its last session at which a reservation is removed.",
    ).tag(config=True)
    keep_policies_days = Float(
        Ages.policies,
        min=1.0,
        help="Days after which a version of the policy that is no longer in force is removed.",
    ).tag(config=True)
    keep_usage_days = Float(
        Ages.usage, min=1.0, help="Days after which records of charges are removed."
    ).tag(config=True)
    keep_plans_days = Float(
        Ages.plans,
        min=0.01,
        help="Days after which decisions are removed, with what they were made from.",
    ).tag(config=True)
    keep_plans_size = Unicode(
        "256MiB", help="How much all kept plans may take together; the oldest go first."
    ).tag(config=True)
    provider = Enum(
        ["local", "kubernetes"],
        "local",
        help="Where leases run: on this machine, or as pods (then see KubernetesSettings).",
    ).tag(config=True)
    log_name = CaselessStrEnum(
        ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], "INFO", help="Level of the log."
    ).tag(config=True)

    @default("service_url")
    def _service_url(self) -> str:
        return os.environ.get("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:10101")

    @default("user_domains")
    def _user_domains(self) -> bool:
        return bool(os.environ.get("JUPYTERHUB_HOST"))

    def initialize(self, argv: Sequence[str] | None = None) -> None:
        """Read the command line, then the configuration file; the command line wins.

        Raises:
            GPULeaseError: ``bad_option`` for a word too many, and for a configuration file that is
                not there or fails: to go on with the defaults would serve another site than the
                one described.
        """
        self.parse_command_line(None if argv is None else list(argv))
        if self.extra_args:
            raise GPULeaseError(
                "bad_option",
                f"{self.extra_args[0]!r} is no option of the service.",
                next_step="See gpulease service --help.",
            )
        if self.config_file:
            given = self.cli_config
            found = read_configuration("config_file", self.config_file)
            try:
                self.update_config(found)
            except TraitError as error:
                raise failing_file("config_file", self.config_file, error) from error
            self.update_config(given)

    def options(self) -> Options:
        """Return the options as plain values.

        Raises:
            GPULeaseError: ``bad_option`` when one of them cannot be read.
        """
        scheme, host, port = listening_at("service_url", self.service_url, ("http", "https"))
        base = os.environ.get("JUPYTERHUB_BASE_URL") or "/"
        cluster = KubernetesSettings(parent=self) if self.provider == "kubernetes" else None
        prefix = _slashes(os.environ.get("JUPYTERHUB_SERVICE_PREFIX") or "/services/gpulease/")
        return Options(
            host=host,
            port=port,
            prefix=prefix,
            hubs=read_hubs(self.hubs, os.environ, prefix, cluster.namespaces if cluster else None),
            hub_path=f"{_slashes(base)}hub/",
            hub_origin=self.hub_origin
            or _origin(os.environ.get("JUPYTERHUB_PUBLIC_HUB_URL", ""))
            or _origin(os.environ.get("JUPYTERHUB_HOST", "")),
            docs_url=web_address("docs_url", self.docs_url),
            card_acts=self.user_domains or self.trusted_servers,
            tls=listening_tls(os.environ) if scheme == "https" else None,
            database_url=self.database_url,
            key_file=_path(self.key_file),
            gpus=self.gpus,
            gpu_name=self.gpu_name,
            gpu_memory=size_option("gpu_memory", self.gpu_memory),
            simulate=self.simulate,
            policy_file=_path(self.policy_file),
            first_policy_file=_path(self.first_policy_file),
            first_time_outs={
                str(name): float(value) for name, value in self.first_time_outs.items()
            },
            park_dir=self.park_dir,
            park_limit=size_option("park_limit", self.park_limit),
            park_expiry=self.park_days * 86400.0,
            smtp=self.notify_smtp,
            smtp_login=smtp_login(self.notify_smtp_user, self.notify_smtp_password_file),
            mail_from=self.notify_from,
            webhook=self.notify_webhook,
            tick=self.tick,
            hub_seconds=self.hub_seconds,
            lost_seconds=self.lost_seconds,
            ages=self._ages(),
            connections_max=self.connections_max,
            metrics_at=listening_at("metrics_url", self.metrics_url, ("http",))[1:]
            if self.metrics_url
            else None,
            request_seconds=self.request_seconds,
            cluster=cluster,
        )

    def _ages(self) -> Ages:
        days = {
            each.name: getattr(self, f"keep_{each.name}_days")
            for each in fields(Ages)
            if each.name != "plans_bytes"
        }
        return Ages(**days, plans_bytes=size_option("keep_plans_size", self.keep_plans_size))


def _slashes(path: str) -> str:
    return f"/{path.strip('/')}/".replace("//", "/")


def _path(given: str) -> Path | None:
    return Path(given).expanduser() if given else None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme and parts.netloc else ""
