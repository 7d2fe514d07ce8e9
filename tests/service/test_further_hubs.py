"""What is said of further hubs: read, or refused by the option's name and without a token."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.routes import log_in_of
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.reading import FurtherHub, read_hubs

FIRST = "/services/gpulease/"
SECRET = "a-token-that-nobody-may-read"
ENVIRON = {"LAB_TOKEN": f"{SECRET}\n"}
LAB = {"api_url": "http://lab:8081/hub/api", "token_env": "LAB_TOKEN"}


def read(**hubs: Any) -> tuple[FurtherHub, ...]:
    return read_hubs(hubs, ENVIRON, FIRST)


def test_little_must_be_said_of_a_hub(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    (lab, other) = read(
        lab2=LAB,
        x={"api_url": "https://x.example/a/hub/api/", "token_file": str(file),
           "prefix": "a/services/gpus-of-x", "trusted_servers": True},
    )  # fmt: skip
    assert lab == FurtherHub("lab2", LAB["api_url"], SECRET, "/services/gpulease-lab2/")
    assert (lab.service_name, lab.base, lab.trusted_servers) == ("gpulease-lab2", "/", False)
    assert (other.service_name, other.base, other.token) == ("gpus-of-x", "/a/", SECRET)
    assert other.api_url == "https://x.example/a/hub/api"
    assert SECRET not in repr(lab) + repr(other)


WRONG = [
        ({"Lab": LAB}, "hubs"),
        ({"service": LAB}, "hubs"),
        ({"lab2": "http://lab:8081/hub/api"}, "hubs['lab2']"),
        ({"lab2": {**LAB, "token": SECRET}}, "hubs['lab2']"),
        ({"lab2": {**LAB, "api_url": "lab:8081"}}, "hubs['lab2'].api_url"),
        ({"lab2": {**LAB, "api_url": "http://u:p@lab/hub/api"}}, "hubs['lab2'].api_url"),
        ({"lab2": {"api_url": LAB["api_url"]}}, "hubs['lab2']"),
        ({"lab2": {**LAB, "token_file": "/token"}}, "hubs['lab2']"),
        ({"lab2": {**LAB, "token_env": "NO_SUCH"}}, "hubs['lab2'].token_env"),
        ({"lab2": {"api_url": LAB["api_url"], "token_file": "/no/file"}},
         "hubs['lab2'].token_file"),
        ({"lab2": {**LAB, "prefix": "/gpulease-lab2/"}}, "hubs['lab2'].prefix"),
        ({"lab2": {**LAB, "prefix": "/services/a/b/"}}, "hubs['lab2'].prefix"),
        ({"lab2": {**LAB, "prefix": "/services/{x}/"}}, "hubs['lab2'].prefix"),
        ({"lab2": {**LAB, "prefix": FIRST}}, "hubs['lab2'].prefix"),
        ({"a": {**LAB, "prefix": "/services/x/"}, "b": {**LAB, "prefix": "/services/x/"}},
         "hubs['b'].prefix"),
        ({"lab2": {**LAB, "trusted_servers": "no"}}, "hubs['lab2'].trusted_servers"),
    ]  # fmt: skip


def test_what_is_wrong_is_named_and_no_token_is_shown() -> None:
    for hubs, option in WRONG:
        with pytest.raises(GPULeaseError) as refused:
            read(**hubs)
        assert refused.value.reason == "bad_option"
        assert refused.value.sentence.startswith(f"GPULeaseService.{option} is ")
        assert SECRET not in f"{refused.value}{refused.value.numbers}"


def test_the_service_reads_them_from_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    file = tmp_path / "config.py"
    file.write_text(f"c.GPULeaseService.hubs = {{'lab2': {LAB!r}}}\n")
    app = GPULeaseService()
    with caplog.at_level(logging.DEBUG):
        app.initialize(["--config", str(file)])
        (lab,) = app.options().hubs
    assert lab.token == SECRET
    assert SECRET not in caplog.text + repr(app.options())


def test_two_paths_of_which_one_begins_as_the_other_are_refused() -> None:
    for first in (FIRST, "services/gpulease", "/services/gpulease-lab2"):
        told = {"lab2": {**LAB, "prefix": f"/{first.strip('/')}/"}}
        with pytest.raises(GPULeaseError, match="prefix"):
            read_hubs(told, ENVIRON, first)


def namespaces(first: list[str] | None, **hubs: Any) -> str:
    """Return the option that is refused, "" for none."""
    told = {
        name: {**LAB, **({"namespaces": each} if each is not None else {})}
        for name, each in hubs.items()
    }
    try:
        found = read_hubs(told, ENVIRON, FIRST, first)
    except GPULeaseError as error:
        return error.sentence.partition(" is ")[0].removeprefix("GPULeaseService.")
    assert [list(each.namespaces) for each in found] == [each or [] for each in hubs.values()]
    return ""


def test_on_kubernetes_every_hub_has_namespaces_of_its_own() -> None:
    assert namespaces(["hub"], lab2=["lab2"], x=["x", "x-*"]) == ""
    assert namespaces(None, lab2=None) == ""
    wrong = "hubs['lab2'].namespaces"
    assert namespaces(["hub"], lab2=None) == wrong
    assert namespaces(["hub"], lab2=[]) == wrong
    assert namespaces(None, lab2=["lab2"]) == wrong
    assert namespaces(["hub"], lab2=["hub"]) == wrong
    assert namespaces(["hub-*"], lab2=["hub-lab2"]) == wrong
    assert namespaces(["hub-lab2"], lab2=["hub-*"]) == wrong
    assert namespaces(["hub-*"], lab2=["hub-lab2-*"]) == wrong
    assert namespaces(["hub"], lab2=["*"]) == wrong
    assert namespaces(["hub"], x=["lab*"], lab2=["lab2"]) == wrong
    assert namespaces(["hub"], lab2="lab2") == wrong
    assert namespaces(["hub"], lab2=[""]) == wrong


def test_the_provider_is_told_of_all_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    app = GPULeaseService(provider="kubernetes", hubs={"lab2": {**LAB, "namespaces": ["lab2"]}})
    app.config.KubernetesSettings.namespaces = ["hub"]
    found = app.options()
    assert found.cluster is not None
    assert found.cluster.all_namespaces(found.hubs) == ("hub", "lab2")


def test_without_any_the_service_is_as_it_was() -> None:
    assert GPULeaseService().options().hubs == ()


def test_a_hubs_log_in_has_nothing_of_the_first_ones_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "API_TOKEN", "CLIENT_ID", "HOST", "BASE_URL", "SERVICE_NAME", "SERVICE_PREFIX",
        "OAUTH_CALLBACK_URL", "SSL_KEYFILE", "SSL_CERTFILE", "SSL_CLIENT_CA",
    ):  # fmt: skip
        monkeypatch.setenv(f"JUPYTERHUB_{name}", "/first-hub")
    monkeypatch.setenv("JUPYTERHUB_API_URL", "http://first-hub/hub/api")
    monkeypatch.setenv("JUPYTERHUB_OAUTH_ACCESS_SCOPES", '["first-hub"]')
    (lab,) = read(lab2={**LAB, "prefix": "/a/services/gpus/"})
    found = log_in_of(lab)
    names = (
        "api_url", "api_token", "hub_host", "hub_prefix", "base_url", "access_scopes",
        "oauth_client_id", "oauth_redirect_uri", "oauth_authorization_url", "oauth_token_url",
        "login_url", "keyfile", "certfile", "client_ca", "cookie_name", "cookie_path",
    )  # fmt: skip
    told = {name: getattr(found, name) for name in names}
    assert "first-hub" not in str(told)
    assert told["access_scopes"] == {"access:services!service=gpus"}
    assert told["oauth_redirect_uri"] == "/a/services/gpus/oauth_callback"
    assert told["login_url"].startswith("/a/hub/api/oauth2/authorize?")
