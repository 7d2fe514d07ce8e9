"""What of the policy concerns one person: what is on offer to them, and by which rules.

The caller names the groups of the person, and those that they teach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpulease.policy.model import PolicyDocument
from gpulease.policy.projects import Project


def concerning(
    policy: PolicyDocument, user: str, groups: tuple[str, ...], teaches: Callable[[str], bool]
) -> PolicyDocument:
    """Return the document without what is only of others, of the machines and of its keepers.

    Every class, time-out and limit stays.  Of projects and of groups' terms stay those that the
    person is in or teaches, of people in them the person alone (of what they teach everybody), and
    nobody's address.
    """
    projects = policy.projects
    in_or_taught = [
        each
        for each in projects.leaves
        if each in projects.of(groups) or (each.group and teaches(each.group))
    ]
    shown = {each.name for leaf in in_or_taught for each in projects.above(leaf)}
    terms = policy.reservations
    return replace(
        policy,
        classes=tuple(replace(each, pod=None) for each in policy.classes),
        reservations=replace(
            terms,
            groups=tuple(
                (name, own if teaches(name) else replace(own, managers=()))
                for name, own in terms.groups
                if name in groups or teaches(name)
            ),
        ),
        projects=replace(
            projects,
            all=tuple(_project(each, user, teaches) for each in projects.all if each.name in shown),
        ),
        drained_nodes=(),
    )


def _project(project: Project, user: str, teaches: Callable[[str], bool]) -> Project:
    budget = replace(project.budget, contact=()) if project.budget is not None else None
    if project.group and teaches(project.group):
        return replace(project, budget=budget)
    if budget is not None:
        budget = replace(budget, people=tuple(each for each in budget.people if each[0] == user))
    return replace(
        project, people=tuple(each for each in project.people if each[0] == user), budget=budget
    )
