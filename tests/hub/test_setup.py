"""``setup_gpulease`` on a configuration object: what it adds, keeps and refuses."""

import pytest
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets.config import Config

from gpulease.errors import GPULeaseError
from gpulease.hub import GPULeaseSpawnerMixin, compat, scopes, setup_gpulease
from gpulease.hub.merge import listed

URL = "http://127.0.0.1:9980"


def external(c: Config, **changed) -> Config:
    setup_gpulease(c, **{"service_url": URL, "service_token": "s" * 32, **changed})
    return c


def role(c: Config, name: str) -> dict:
    return next(each for each in listed(c.JupyterHub, "load_roles") if each["name"] == name)


def test_an_external_service():
    c = external(Config())
    (service,) = listed(c.JupyterHub, "services")
    assert service["url"] == URL
    assert service["api_token"] == "s" * 32
    assert "command" not in service
    assert service["oauth_no_confirm"] is True
    assert role(c, "gpulease-service")["services"] == ["gpulease"]


def test_a_hub_does_not_wait_for_a_service_that_runs_by_itself():
    (service,) = listed(external(Config()).JupyterHub, "services")
    assert service.get("timeout") == compat.expected_to_be_up().get("timeout")
    assert compat.expected_to_be_up(version=(6, 1)) == {"timeout": 1}
    assert compat.expected_to_be_up(version=(5, 5)) == {}, "5.x refuses what it does not know"


def test_a_managed_service():
    c = Config()
    setup_gpulease(
        c,
        service_url=URL,
        service_command=["run", "it"],
        service_environment={"A": "b"},
        service_user="gpulease",
    )
    (service,) = listed(c.JupyterHub, "services")
    assert service["command"] == ["run", "it"]
    assert service["environment"] == {"A": "b"}
    assert service["user"] == "gpulease"


@pytest.mark.parametrize(
    ("euid", "user", "allowed", "refused"),
    [
        (0, None, False, True),
        (0, "root", False, True),
        (0, "gpulease", False, False),
        (0, None, True, False),
        (1000, None, False, False),
    ],
)
def test_a_service_that_would_run_as_root_is_refused(monkeypatch, euid, user, allowed, refused):
    monkeypatch.setattr("os.geteuid", lambda: euid)
    c = Config()
    given = {"service_user": user, "allow_service_as_root": allowed}
    if not refused:
        setup_gpulease(c, service_url=URL, service_command=["run"], **given)
        return
    with pytest.raises(GPULeaseError) as error:
        setup_gpulease(c, service_url=URL, service_command=["run"], **given)
    assert "service_user" in (error.value.next_step or "")
    assert not c.JupyterHub  # nothing was changed


def test_the_service_may_neither_start_nor_stop_nor_impersonate():
    wanted = set(role(external(Config()), "gpulease-service")["scopes"])
    assert not {
        s for s in wanted if s.startswith(("admin", "servers", "delete", "tokens", "access"))
    }


def test_whole_notebooks_need_named_servers_and_the_right_to_start_them():
    c = external(Config(), whole_notebooks=True)
    assert c.JupyterHub.allow_named_servers
    assert "servers" in role(c, "gpulease-service")["scopes"]
    assert "allow_named_servers" not in external(Config()).JupyterHub
    c = Config()
    c.JupyterHub.allow_named_servers = False
    with pytest.raises(GPULeaseError) as refused:
        external(c, whole_notebooks=True)
    assert refused.value.reason == "hub_config_conflict"


def test_admins_and_instructors_get_roles():
    c = Config()
    c.Authenticator.admin_users = {"root"}
    external(c, admins=["ada"], admin_groups=["ops"], instructors={"cs101": ["ines"]})
    assert role(c, "gpulease-admin")["users"] == ["ada", "root"]
    assert role(c, "gpulease-admin")["groups"] == ["ops"]
    instructor = role(c, "gpulease-instructor-cs101")
    assert instructor["users"] == ["ines"]
    assert "custom:gpulease:reserve!group=cs101" in instructor["scopes"]
    assert "custom:gpulease:reserve" not in instructor["scopes"]


def test_groups_of_any_name_get_valid_and_different_role_names():
    names = [
        scopes.role_name("gpulease-instructor", g) for g in ("CS 101", "cs-101", "cs 101", "é")
    ]
    from jupyterhub.roles import _validate_role_name

    assert all(_validate_role_name(name) for name in names)
    assert len(set(names)) == len(names)


def test_only_some_groups_may_ask():
    c = external(Config(), request_groups=["cs101"])
    assert role(c, "gpulease-user")["groups"] == ["cs101"]
    assert "extra_user_scopes" not in c.JupyterHub


@pytest.mark.parametrize(
    ("version", "where"), [((6, 1), "extra_user_scopes"), ((5, 5), "load_roles")]
)
def test_everybody_may_ask_on_both_hub_versions(version, where):
    c = Config()
    compat.add_user_scopes(c, ["one"], version=version)
    if where == "load_roles":
        assert role(c, "user")["scopes"] == ["self", "one"]
    else:
        assert c.JupyterHub.extra_user_scopes == {"one"}


@pytest.mark.parametrize("version", [(6, 1), (5, 5)])
def test_a_redefined_user_role_is_extended(version):
    c = Config()
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "theirs"]}]
    compat.add_user_scopes(c, ["one"], version=version)
    assert role(c, "user")["scopes"] == ["self", "theirs", "one"]
    assert "extra_user_scopes" not in c.JupyterHub


def test_a_site_keeps_its_services_roles_and_scopes():
    c = Config()
    c.JupyterHub.services = [{"name": "theirs", "url": "http://127.0.0.1:1"}]
    c.JupyterHub.load_roles = [{"name": "theirs", "scopes": ["self"]}]
    c.JupyterHub.custom_scopes = {"custom:theirs:x": {"description": "x"}}
    external(c)
    assert [s["name"] for s in c.JupyterHub.services] == ["theirs", "gpulease"]
    assert role(c, "theirs") == {"name": "theirs", "scopes": ["self"]}
    assert set(c.JupyterHub.custom_scopes) == {"custom:theirs:x", *scopes.CUSTOM_SCOPES}


@pytest.mark.parametrize(
    "site",
    [
        {"services": [{"name": "gpulease", "url": "http://127.0.0.1:1"}]},
        {"load_roles": [{"name": "gpulease-service", "scopes": []}]},
        {"custom_scopes": {"custom:gpulease:request": {"description": "other"}}},
        {"template_vars": {"gpulease_service_name": "other"}},
    ],
    ids=lambda site: next(iter(site)),
)
def test_what_cannot_stand_together_is_refused(site):
    c = Config()
    c.JupyterHub.update(site)
    with pytest.raises(GPULeaseError) as refused:
        external(c)
    assert refused.value.reason == "hub_config_conflict"
    assert next(iter(site)) in refused.value.sentence
    assert refused.value.next_step


@pytest.mark.parametrize(
    "arguments",
    [
        {"service_url": "9980"},
        {"service_url": "ftp://x"},
        {"service_token": None},
        {"spawner_class": "no.such.Spawner"},
        {"spawner_class": "os.path"},
    ],
)
def test_arguments_that_cannot_be_right_are_refused(arguments):
    with pytest.raises(GPULeaseError) as refused:
        external(Config(), **arguments)
    assert refused.value.reason == "hub_config_invalid"
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("site", "path"),
    [
        ({}, "/"),
        ({"base_url": "/jupyter"}, "/jupyter/"),
        ({"bind_url": "http://:80/a/b/"}, "/a/b/"),
    ],
)
def test_servers_reach_the_service_under_the_hubs_base_path(site, path):
    c = Config()
    c.JupyterHub.update(site)
    external(c)
    assert c.GPULeaseSpawnerMixin.gpulease_service_url == f"{URL}{path}services/gpulease/"


def test_any_spawner_is_wrapped_once():
    c = Config()
    c.JupyterHub.spawner_class = "simple"
    external(c)
    wrapped = c.JupyterHub.spawner_class
    assert issubclass(wrapped, GPULeaseSpawnerMixin)
    assert issubclass(wrapped, SimpleLocalProcessSpawner)
    again = external(Config(), spawner_class=wrapped)
    assert again.JupyterHub.spawner_class is wrapped
