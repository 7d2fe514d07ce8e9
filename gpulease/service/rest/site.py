"""REST of the site: policy, health, metrics, the API's own description, what node agents saw."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from gpulease.policy.consequences import at_once, audience, warned_by
from gpulease.policy.document import MAX_TEXT, dump, form, json_schema
from gpulease.policy.document.edit import concerning, differences, with_time_outs
from gpulease.policy.model import PolicyDocument
from gpulease.policy.reservations.reports import sentence_of, without_class
from gpulease.service.agents import resources_of
from gpulease.service.context import Services
from gpulease.service.hubs.auth import SCOPE_ADMIN, SCOPE_METRICS
from gpulease.service.leases.device_map import DeviceState, device_map
from gpulease.service.rest.answering import Answers
from gpulease.service.rest.base import (
    ACCESS,
    AGENT_TOKEN,
    PUBLIC,
    BaseHandler,
    answers,
    check_protocol,
    needs_scope,
)
from gpulease.service.rest.openapi import Description
from gpulease.service.schemas.bodies import (
    AgentPostBody,
    AuditQuery,
    PageQuery,
    PolicyBody,
    TimeOutsBody,
    WhatIfBody,
)
from gpulease.service.schemas.shapes import (
    AlertView,
    AskerView,
    BatchesTaken,
    ChangeView,
    HealthView,
    IncidentView,
    Items,
    Page,
    PolicyAbout,
    PolicyChecked,
    PolicyView,
    TimeOutsChecked,
    TimeOutsView,
    WhatIfView,
)

#: A text of which JSON writes each character by its number, and what stands around it.
_POLICY_MAX = 6 * MAX_TEXT + 1024


class Policy(BaseHandler):
    """``policy``: the document in force."""

    body_max = _POLICY_MAX

    @needs_scope(ACCESS)
    @answers({200: PolicyView})
    async def get(self) -> None:
        """Show the policy in force: its text to admins, to others what concerns them."""
        policies, asker = self.services.policies, self.asker
        found = policies.view(policies.text)
        if not asker.admin:
            own = concerning(policies.current, asker.name, asker.groups, asker.teaches)
            found |= {"text": dump(own), "author": ""}
        self.answer(found)

    @needs_scope(SCOPE_ADMIN)
    @answers({200: PolicyView}, body=PolicyBody, refuses=(409,))
    async def put(self) -> None:
        """Put another policy into force at once."""
        body = self.parse(PolicyBody)
        policies = self.services.policies
        saved = await policies.save(body.text, self.asker.name, body.base_version)
        self.answer(policies.view(saved))


class PolicySchema(BaseHandler):
    """``policy/schema``: the JSON Schema of the document, for editors."""

    @needs_scope(ACCESS)
    @answers({200: dict[str, Any]})
    async def get(self) -> None:
        """Return the document's JSON Schema, for editors."""
        self.answer(json_schema())


class PolicyCheck(BaseHandler):
    """``policy/check``."""

    body_max = _POLICY_MAX

    @needs_scope(SCOPE_ADMIN)
    @answers({200: PolicyChecked}, body=PolicyBody)
    async def post(self) -> None:
        """Say what is wrong with a document, by line, or what it would change for whom."""
        self.answer(await _checked(self, self.parse(PolicyBody).text))


class PolicyTimeOuts(BaseHandler):
    """``policy/time-outs``: the time-outs as a form shows them."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: TimeOutsView})
    async def get(self) -> None:
        """Show the time-outs in force, with bounds and defaults."""
        policies = self.services.policies
        outs = policies.current.time_outs
        items = [{**asdict(each), "value": getattr(outs, each.name)} for each in form()]
        version = policies.text.version
        self.answer({"items": items, "version": version, "pinned": policies.pinned})

    @needs_scope(SCOPE_ADMIN)
    @answers({200: TimeOutsChecked}, body=TimeOutsBody)
    async def post(self) -> None:
        """Say what other time-outs would do, with the text to save; nothing is saved."""
        values = self.parse(TimeOutsBody).values
        text = with_time_outs(self.services.policies.text.text, values)
        self.answer({**await _checked(self, text), "text": text})


async def _checked(handler: BaseHandler, text: str) -> PolicyChecked:
    services, policies = handler.services, handler.services.policies
    findings = policies.check(text)
    if any(finding["level"] == "error" for finding in findings):
        return {"valid": False, "findings": findings, "changes": [], "warned": 0, "effects": []}
    before, after = policies.current, policies.parsed(text)
    # A snapshot of its own: it is planned with in a thread, and what it works out it remembers.
    snapshot = replace(services.loop.shown())
    now = await services.workers.thread(handler.asker.name, at_once, snapshot, after)
    return {
        "valid": True,
        "findings": findings,
        "changes": differences(before, after),
        "effects": [*now, *_lost_labs(services, after), *audience(before, after)],
        "warned": len(warned_by(snapshot, after)),
    }


def _lost_labs(services: Services, after: PolicyDocument) -> list[str]:
    """Say which reservations would have no class any more that have one now."""
    every, now = services.reservations.all(), services.loop.shown().now
    there = [each for each in every if each.gpu_class in services.policies.current.by_name]
    return [sentence_of(each) for each in without_class(there, after, now)]


class WhatIf(BaseHandler):
    """``whatif``."""

    body_max = _POLICY_MAX

    @needs_scope(SCOPE_ADMIN)
    @answers({200: WhatIfView}, body=WhatIfBody, refuses=(409, 429))
    async def post(self) -> None:
        """Replay the last days under a document."""
        body = self.parse(WhatIfBody)
        services = self.services
        asked = services.whatif.ask(body.text, body.days, services.loop.clock())
        self.answer(await self.unless_gone(asked))


class PolicyVersions(BaseHandler):
    """``policy/versions``."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Page[PolicyAbout]}, query=PageQuery)
    async def get(self) -> None:
        """List the versions, newest first, without their texts."""
        query = self.query(PageQuery)
        items, total = await self.services.policies.versions(query.offset, query.limit)
        self.answer_page(items, total, query)


class PolicyVersion(BaseHandler):
    """``policy/versions/{n}``."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: PolicyView})
    async def get(self, version: str) -> None:
        """Show one version with its text."""
        policies = self.services.policies
        self.answer(policies.view(await policies.version(int(version))))


class AlertList(BaseHandler):
    """``alerts``: what stands now and needs an admin."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Items[AlertView]})
    async def get(self) -> None:
        """List what stands now and needs an admin."""
        self.answer({"items": self.services.alerts()})


class IncidentList(BaseHandler):
    """``incidents``: what went wrong around leases, for admins."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Page[IncidentView]}, query=PageQuery)
    async def get(self) -> None:
        """List what went wrong around leases, newest first."""
        query = self.query(PageQuery)
        items, total = await self.services.incidents.page(query.offset, query.limit)
        self.answer_page(items, total, query)


class AuditList(BaseHandler):
    """``audit``: every change of a lease, for admins."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Page[ChangeView]}, query=AuditQuery)
    async def get(self) -> None:
        """List every change of a lease, newest first; every word of ``q`` occurs in it."""
        query = self.query(AuditQuery)
        items, total = await self.services.incidents.changes(query.q, query.offset, query.limit)
        self.answer_page(items, total, query)


class DeviceList(BaseHandler):
    """``devices``: what each device does now, for whom and why; for admins."""

    @needs_scope(SCOPE_ADMIN)
    @answers({200: Items[DeviceState]})
    async def get(self) -> None:
        """List every device with what it does now, for whom and why."""
        pods = self.services.provider.warm_pods
        ready = pods.places() if pods is not None else None
        self.answer({"items": device_map(self.services.loop.shown(), ready)})


class Me(BaseHandler):
    """``me``: who the service takes the asker for, and what they may do."""

    @needs_scope(ACCESS)
    @answers({200: AskerView})
    async def get(self) -> None:
        """Say whom the service takes you for, and what you may do."""
        asker = self.asker
        self.answer(
            {
                "name": asker.name,
                "kind": asker.kind,
                "groups": list(asker.groups),
                "may_ask": asker.may_ask,
                "admin": asker.admin,
                "leads": list(asker.leads),
                "leads_all": asker.leads_all,
                "server": asker.claimed_server,
            }
        )


class Health(Answers):
    """``health``: whether the service works, for people and for probes.

    It names parts and reasons, never users or leases, so it needs no log-in.
    """

    @needs_scope(PUBLIC)
    @answers({200: HealthView, 503: HealthView})
    async def get(self) -> None:
        """Say whether the service works: 200 when leases can be granted, else 503."""
        found = self.services.health()
        self.answer(found, 200 if found["status"] != "error" else 503)


def _show_figures(handler: Answers) -> None:
    handler.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
    handler.finish(handler.services.metrics.text())


class Figures(Answers):
    """``/metrics`` for Prometheus, on an address of its own; figures only, no names."""

    async def get(self) -> None:
        """Answer the figures."""
        _show_figures(self)


class MetricsPage(BaseHandler):
    """``metrics`` under the service's prefix: the same, for who may read figures."""

    @needs_scope(SCOPE_METRICS)
    async def get(self) -> None:
        """Answer the figures."""
        _show_figures(self)


class OpenAPI(Answers):
    """``openapi.json``."""

    @needs_scope(PUBLIC)
    @answers({200: dict[str, Any]})
    async def get(self) -> None:
        """Describe this API."""
        description: Description = self.settings["description"]
        self.set_header("Content-Type", "application/json")
        self.finish(await description.text(self.services.workers))


_NEXT_STEP = "Run the agent's image of the service's version."


class AgentBatches(Answers):
    """``agents/batches``."""

    body_max = 4 * 2**20

    async def admit(self) -> None:
        """Find out which node's agent posts: its node is the token's, never the body's.

        Raises:
            GPULeaseError: ``not_an_agent``, ``cluster_unreachable``.
        """
        self._node = await self.services.agents.node_of(self.bearer())

    @needs_scope(AGENT_TOKEN)
    @answers({200: BatchesTaken}, body=AgentPostBody, refuses=(401, 403, 426, 502))
    async def post(self) -> None:
        """Take what a node agent saw.

        Raises:
            GPULeaseError: ``wrong_protocol`` (426) and what ``parse`` refuses with.
        """
        post = self.parse(AgentPostBody).root
        check_protocol("The agent", post["protocol"], _NEXT_STEP)
        resources = resources_of(self.services.policies.current)
        self.answer({**self.services.agents.take(self._node, post), "resources": resources})
