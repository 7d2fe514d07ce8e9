"""Short ways to write projects and their leases."""

from dataclasses import replace
from typing import Any

from gpulease.policy.model import Lease, PolicyDocument
from gpulease.policy.projects import Member, Project, Projects, Share
from tests.policy.build import active, policy, request


def project(name: str, guarantee: int = 0, limit: int | None = None, **changed: Any) -> Project:
    base = Project(name, group=name, pools=(("cards", Share(guarantee, limit)),))
    return replace(base, **changed)


def shared(*projects: Project, strength: float = 0.0, **changed: Any) -> PolicyDocument:
    return policy(leases_per_user=99, projects=Projects(projects, strength=strength), **changed)


def holds(number: int, name: str, **changed: Any) -> Lease:
    """A lease of device n, of project ``name``, active for half an hour."""
    return active(number, project=name, server=f"s{number}", pool="cards", **changed)


def asks(number: int, name: str, **changed: Any) -> Lease:
    return request(number, project=name, server=f"s{number}", **changed)


def limited(weight: float = 1.0, limit: int | None = None) -> Member:
    return Member(weight, limit)
