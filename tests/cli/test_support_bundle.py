"""What a support bundle holds, and that no secret is in it, wherever it came from."""

import io
import json
import stat
import tarfile

import pytest
from traitlets.config import Config

from gpulease.cli import main
from gpulease.commands import support_bundle

QUOTED = 'with "quotes" and \\ in it'
SECRETS = {
    "JUPYTERHUB_API_TOKEN": "5f2c0a-hub-token",
    "DATABASE_URL": "postgresql+psycopg://gpulease:s3cr3t-of-db@db.example.org/gpulease",
    "GPULEASE_COOKIE_SECRET": QUOTED,
    "SMTP_PASSWORD": "mail-pass-1",
    "GPULEASE_PROXY": "http://ada:proxy-pass@proxy.example.org:3128",
    "JUPYTERHUB_CRYPT_KEY": "00c0ffee-crypt-key",
    "GPULEASE_LAB2": "of-a-further-hub",
    "GPULEASE_PHRASE": "correct horse battery",
    "JUPYTERHUB_OLD": "rotated-value-9",
    "MY_PW": "oddly named",
    "ALERTS": "https://hooks.example.org/T01/in-no-setting",
}
CONFIG = """
import os

c = get_config()
c.GPULeaseService.database_url = os.environ["DATABASE_URL"]
c.GPULeaseService.service_url = "http://127.0.0.1:9"
c.GPULeaseService.metrics_url = "http://127.0.0.1:9"
c.GPULeaseService.notes = ["in a list: " + os.environ["JUPYTERHUB_API_TOKEN"]]
c.GPULeaseService.more = [f"{os.environ['MY_PW']} {os.environ['ALERTS']}", FILE2]
c.GPULeaseService.hubs = {"lab2": {"token_env": "GPULEASE_LAB2"}, "lab3": {"token_file": FILE}}
c.GPULeaseService.notify_webhook = "https://hooks.example.org/services/T00/hook-in-a-path"
c.GPULeaseService.notify_smtp_password_file = FILE
c.Other.notes = "said in a sentence: the-token-in-a-setting's-file"
c.KubernetesSettings.environment = {"WANDB_API_KEY": "key-of-a-class"}
c.Other.api_token = "a-token-that-stands-in-the-file"
c.Other.relay = "smtp://bot:relay-pass@mail.example.org"
c.KubernetesSettings.environment["PGW"] = "oddly-named-for-pods"
c.Other.pw = "of-a-class-that-nobody-knows"
c.Other.said = os.environ["GPULEASE_COOKIE_SECRET"]
"""
EVERY = (
    *("5f2c0a-hub-token", "s3cr3t-of-db", QUOTED, json.dumps(QUOTED)[1:-1], "mail-pass-1"),
    *("00c0ffee-crypt-key", "of-a-further-hub", "services/T00/hook-in-a-path", "key-of-a-class"),
    "the-token-in-a-setting's-file",
    *("correct horse battery", "rotated-value-9", "oddly named", "T01/in-no-setting"),
    *("oddly-named-for-pods", "of-a-class-that-nobody-knows", "what-an-oddly-named-file-holds"),
    *("proxy-pass", "a-token-that-stands-in-the-file", "relay-pass", "the-token-in-a-file"),
)


@pytest.fixture
def config(monkeypatch, tmp_path):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "token"
    file.write_text("the-token-in-a-file\n")
    monkeypatch.setenv("GPULEASE_TOKEN_FILE", str(file))
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/gpulease/")
    # Nothing of a cluster that this machine may know.
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    found = tmp_path / "config.py"
    other = tmp_path / "other"
    other.write_text("the-token-in-a-setting's-file\n")
    odd = tmp_path / "odd"
    odd.write_text("what-an-oddly-named-file-holds\n")
    monkeypatch.setenv("ODD_FILE", str(odd))
    text = CONFIG.replace("FILE2", repr(odd.read_text().strip()))
    found.write_text(text.replace("FILE", repr(str(other))))
    return found


def texts(packed):
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {each.name: archive.extractfile(each).read().decode() for each in archive}


def test_no_secret_is_in_it_wherever_it_came_from(config, tmp_path):
    target = tmp_path / "bundle.tar.gz"
    assert main(["support-bundle", "--config", str(config), str(target)]) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    found = texts(target.read_bytes())
    names = ("about", "environment", "settings", "doctor", "health")
    assert set(found) == {
        "gpulease-support/metrics.txt",
        *(f"gpulease-support/{name}.json" for name in names),
    }
    for name, text in found.items():
        for secret in EVERY:
            assert secret not in text, name
    settings = json.loads(found["gpulease-support/settings.json"])
    assert settings["GPULeaseService"]["service_url"] == "http://127.0.0.1:9"
    assert set(settings["Other"].values()) == {"[removed]"}
    assert settings["KubernetesSettings"]["environment"] == dict.fromkeys(
        ("WANDB_API_KEY", "PGW"), "[removed]"
    )
    shown = json.loads(found["gpulease-support/environment.json"])
    assert shown["JUPYTERHUB_SERVICE_PREFIX"] == "/services/gpulease/"
    # The service does not run here: the bundle says so and is written all the same.
    assert "not to be had" in found["gpulease-support/health.json"]


@pytest.mark.parametrize(
    ("value", "what_is_shown"),
    [
        ("http://127.0.0.1:1/x?token=abc", "http://127.0.0.1:1/x?[removed]"),
        ("http://u:S@h:80/x?a=S&b=S#S", "http://[removed]@h:80/x?[removed]"),
        ("https://S@h/x", "https://[removed]@h/x"),
        ("https://u:p?S@h/x", "https://[removed]"),
        ("https://u:S/S@S@h/x", "https://[removed]@h/x"),
        ("https://h/x?by=S@S", "https://[removed]"),
        ("postgresql+psycopg://:S@h/db", "postgresql+psycopg://[removed]@h/db"),
        ("/hub/oauth_callback?code=S", "/hub/oauth_callback?[removed]"),
        ("/hub/x#access_token=S", "/hub/x?[removed]"),
        ("u:S@reg:5000/x:1", "[removed]@reg:5000/x:1"),
        ("S@reg/x", "[removed]@reg/x"),
        ("reg:5000/x:1@sha256:0a1b", "reg:5000/x:1@sha256:0a1b"),
        ("gpulease@mail.example.org", "gpulease@mail.example.org"),
        ("Card #1, 8890-8990", "Card #1, 8890-8990"),
    ],
)
def test_of_an_address_its_scheme_host_port_and_path_are_shown(value, what_is_shown):
    assert support_bundle.shown(value) == what_is_shown


SHOWN_IN_PART = {
    "GPULEASE_SERVICE_URL": "http://u:Hidden-01@127.0.0.1:1/x?token=Hidden-02",
    "JUPYTERHUB_API_URL": "http://hub:8081/hub/api?sig=Hidden-03",
    "JUPYTERHUB_HOST": "https://Hidden-04@hub",
    "JUPYTERHUB_OAUTH_CALLBACK_URL": "/x?code=Hidden-05",
}
SETTINGS = {
    "GPULeaseService": {
        "docs_url": "https://d/x/?t=Hidden-06",
        "hub_origin": "https://o?apikey=Hidden-07",
        "notify_smtp": "smtp://me:Hidden-08@mail:25",
        "notify_smtp_user": "Hidden-09",
        "hubs": {"lab2": {"api_url": "http://h/hub/api?k=Hidden-10", "more": {"pw": "Hidden-11"}}},
        "odd": {"deep": [{"name": "WANDB", "value": "Hidden-12"}]},
        "first_time_outs": {"idle": 60, "a": "Hidden-13"},
        "KubernetesSettings": {"image": "Hidden-14"},
        "gpu_name": [{"x": "Hidden-15"}],
    },
    "KubernetesSettings": {
        "image": "u:Hidden-16@reg/x",
        "pod": {"env": [{"name": "X", "value": "Hidden-17"}]},
        "namespaces": ["jupyter-*", "https://u:Hidden-18@h"],
    },
    "Other": {"x": "Hidden-19"},
}


def test_what_is_shown_in_part_hides_the_rest_in_every_text(monkeypatch):
    monkeypatch.setattr(support_bundle, "_doctor", lambda *_: json.dumps([SETTINGS, SHOWN_IN_PART]))
    monkeypatch.setattr(support_bundle, "_asked", lambda base, _path: f"asked at {base}")
    found = support_bundle.collect("", Config(SETTINGS), SHOWN_IN_PART)
    secrets = support_bundle.secrets_of(SHOWN_IN_PART, Config(SETTINGS))
    for name in ("environment.json", "settings.json"):
        assert "Hidden" not in found[name], "before anything is searched for"
    for name, text in texts(support_bundle.bundle(found, secrets)).items():
        assert "Hidden" not in text, name
    settings = json.loads(found["settings.json"])
    assert settings["GPULeaseService"]["hubs"]["lab2"] == {
        "api_url": "http://h/hub/api?[removed]", "more": "[removed]",
    }  # fmt: skip
    assert settings["GPULeaseService"]["first_time_outs"] == {"idle": 60, "a": "[removed]"}
    assert settings["KubernetesSettings"]["namespaces"][0] == "jupyter-*"


def test_beside_the_service_its_health_is_asked_where_other_commands_find_it(monkeypatch):
    asked = []
    monkeypatch.setattr(support_bundle, "_asked", lambda base, path: asked.append(base + path))
    variables = {"GPULEASE_SERVICE_URL": "https://hub.x.org/services/gpulease"}
    support_bundle.collect("", Config(), variables)
    assert asked == ["https://hub.x.org/services/gpulease/api/health"]
    listens = Config({"GPULeaseService": {"service_url": "http://0.0.0.0:9980"}})
    support_bundle.collect("", listens, variables)
    assert asked[1:] == ["http://127.0.0.1:9980/services/gpulease/api/health"]


def test_what_an_answer_holds_is_searched_too():
    given = {"answer.json": json.dumps({"said": QUOTED, "by": "x"})}
    (text,) = texts(support_bundle.bundle(given, SECRETS.values())).values()
    assert json.loads(text) == {"said": "[removed]", "by": "x"}


def test_what_every_shell_has_and_words_of_ours_are_cut_out_of_nothing():
    usual = {
        "HOME": "/home/gpulease", "USER": "gpulease-user", "APP": "gpulease", "PORTS": "9980,9981",
        "MANPATH": "/usr/share/man:/opt/man", "GPULEASE_SERVICE_URL": "https://hub.x.org/s/",
        "SAME": "https://hub.x.org/s/",
    }  # fmt: skip
    assert support_bundle.secrets_of(usual, {}) == set()


def test_a_short_value_cuts_no_words():
    assert support_bundle.secrets_of({"MY_TOKEN": "no", "OTHER": "plain"}, {}) == set()


def test_a_file_that_is_there_stays(config, tmp_path, capsys):
    target = tmp_path / "there"
    target.write_text("mine")
    assert main(["support-bundle", "--config", str(config), str(target)]) == 2
    assert target.read_text() == "mine"
    assert "Name a new file" in capsys.readouterr().err
