"""A node agent is believed for the node that its token is bound to, each batch once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.service.agents import Agents
from gpulease.service.schemas.bodies import AgentPostBody
from tests.service.kit import Site

NOW = datetime.now(UTC).isoformat()
#: Status -> code of a body that cannot be read.
REASONS = {400: "malformed_json", 413: "body_too_large", 426: "wrong_protocol"}


@dataclass
class Cluster:
    """What a provider with agents of its own answers."""

    tokens: dict[str, str] = field(default_factory=lambda: {"of-n1": "n1", "of-n2": "n2"})
    batches: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    asked: int = 0
    away: bool = False

    async def agent_node(self, token: str) -> str | None:
        self.asked += 1
        if self.away:
            raise ConnectionRefusedError("the API server is away")
        return self.tokens.get(token)

    def agent_batch(self, node: str, batch: Mapping[str, Any]) -> None:
        self.batches.append((node, batch))

    def node_leaves(self, node: str) -> bool:
        return node == "n2"


@pytest.fixture
def cluster(site: Site) -> Cluster:
    found = Cluster()
    site.service.services.agents._reports = found
    return found


def batch(sequence: int = 1, **changed: Any) -> dict[str, Any]:
    device = {"uuid": "GPU-1", "parent": "", "index": 0, "name": "NVIDIA", "memory": 2**34}
    return {
        "sequence": sequence,
        "at": NOW,
        "devices": [{**device, "level": "process", "offered": True, "incidents": []}],
        "holders": [],
        "seconds": [{"at": NOW, "device": "GPU-1", "use": 0.5, "pods": {"uid-1": 0.5}}],
        "problem": "",
        **changed,
    }


def posted(*batches: dict[str, Any], **changed: Any) -> dict[str, Any]:
    sent = datetime.now(UTC).isoformat()
    first = {"protocol": PROTOCOL_VERSION, "run": "run-of-tests", "sent": sent}
    return {**first, "batches": list(batches), **changed}


async def post(site: Site, body: Any, token: str = "of-n1", **headers: str) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(
        f"{site.url}api/agents/batches",
        method="POST",
        body=body if isinstance(body, str) else json.dumps(body),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers},
        raise_error=False,
    )


async def test_a_batch_is_the_word_of_the_tokens_node(site: Site, cluster: Cluster) -> None:
    answer = await post(site, posted(batch(), node="n2"))
    assert answer.code == 200
    assert json.loads(answer.body)["taken"] == 1
    ((node, taken),) = cluster.batches
    assert node == "n1"
    assert taken["seconds"][0]["pods"] == {"uid-1": 0.5}
    assert set(site.service.services.agents.heard()) == {"n1"}


async def test_a_repeated_batch_counts_once_and_sequences_are_each_nodes_own(
    site: Site, cluster: Cluster
) -> None:
    await post(site, posted(batch(5), batch(3)))
    again = json.loads((await post(site, posted(batch(3), batch(4), batch(5)))).body)
    assert (again["taken"], again["repeated"]) == (1, 2)
    assert again["leaving"] is False
    leaves = json.loads((await post(site, posted(batch(3)), "of-n2")).body)
    assert leaves["leaving"] is True
    await post(site, posted(batch(3), run="another-run"))
    assert [(node, each["sequence"]) for node, each in cluster.batches] == [
        ("n1", 3),
        ("n1", 5),
        ("n1", 4),
        ("n2", 3),
        ("n1", 3),
    ]


async def test_a_proof_is_kept_for_a_minute_and_a_refusal_is_not(
    site: Site, cluster: Cluster
) -> None:
    await post(site, posted(batch(1)))
    await post(site, posted(batch(2)))
    assert cluster.asked == 1
    assert (await post(site, posted(batch(1)), "of-n3")).code == 403
    cluster.tokens["of-n3"] = "n3"
    assert (await post(site, posted(batch(1)), "of-n3")).code == 200


async def test_anybody_else_is_refused(site: Site, cluster: Cluster) -> None:
    for token, scheme in [("nobody's", "Bearer"), ("", "Bearer"), ("of-n1", "token")]:
        answer = await post(site, posted(batch()), Authorization=f"{scheme} {token}")
        code = 403 if token and scheme == "Bearer" else 401
        assert (answer.code, json.loads(answer.body)["reason"]) == (code, "not_an_agent")
        assert cluster.batches == []


async def test_a_service_without_a_cluster_has_no_agents(site: Site) -> None:
    assert (await post(site, posted(batch()))).code == 403


async def test_a_cluster_that_is_away_is_no_refusal(site: Site, cluster: Cluster) -> None:
    cluster.away = True
    answer = await post(site, posted(batch()))
    assert (answer.code, json.loads(answer.body)["reason"]) == (502, "cluster_unreachable")


SECOND = {"at": NOW, "device": "GPU-1", "use": 0.5}
DEVICE = batch()["devices"][0]
HOLDER = {"namespace": "hub", "pod": "p", "container": "c", "resource": "r", "device": "GPU-1"}


BAD = [
    {},
    posted(),
    posted(*[batch(n + 1) for n in range(61)]),
    posted(batch(0)),
    posted(batch(-1)),
    posted(batch("1")),  # type: ignore[arg-type]
    posted(batch(), run="short"),
    posted(batch(), sent="yesterday"),
    posted(batch(), sent="2026-05-04T12:00:00"),
    posted(batch(seconds=[{**SECOND, "use": 1.5}])),
    posted(batch(seconds=[{**SECOND, "use": -0.1}])),
    posted(batch(seconds=[{**SECOND, "use": None}])),
    posted(batch(seconds=[{**SECOND, "pods": {"u": 2.0}}])),
    posted(batch(seconds=[{**SECOND, "pods": {"": 1.0}}])),
    posted(batch(seconds=[{**SECOND, "memory": -1}])),
    posted(batch(seconds=[{**SECOND, "at": "2026-05-04T12:00:00"}])),
    posted(batch(devices=[{**DEVICE, "level": "guess"}])),
    posted(batch(devices=[{**DEVICE, "uuid": "x" * 200}])),
    posted(batch(devices=[{**DEVICE, "incidents": [{"kind": "bored", "at": NOW}]}])),
    posted(batch(devices=[DEVICE] * 513)),
    posted(batch(holders=[{**HOLDER, "namespace": ""}])),
    posted(batch(holders=[{**HOLDER, "pod": "x" * 300}])),
]


async def test_bad_input_is_refused_by_name(site: Site, cluster: Cluster) -> None:
    for body in BAD:
        answer = await post(site, body)
        found = json.loads(answer.body)
        assert (answer.code, found["reason"]) == (422, "invalid_body")
        assert found["numbers"]["wrong"]
        assert cluster.batches == []


async def test_what_cannot_be_read_is_refused(site: Site, cluster: Cluster) -> None:
    for body, status in [
        ("{", 400),
        ('{"batches": NaN', 400),
        (json.dumps(posted(batch(problem="x"))) + " " * (4 * 2**20), 413),
        (posted(batch(), protocol="2.0"), 426),
    ]:
        answer = await post(site, body)
        assert answer.code == status
        assert json.loads(answer.body)["reason"] == REASONS[status]
        assert cluster.batches == []


async def test_members_of_newer_agents_are_left_alone(site: Site, cluster: Cluster) -> None:
    answer = await post(site, posted(batch(seconds=[{**SECOND, "temperature": 40}]), zone="a"))
    assert answer.code == 200


async def test_a_clock_that_is_off_is_told_and_its_times_are_moved(
    site: Site, cluster: Cluster
) -> None:
    behind = (datetime.now(UTC) - timedelta(seconds=3600)).isoformat()
    incident = {"kind": "gpu_lost", "at": behind, "until": None}
    sick = {**DEVICE, "incidents": [incident, {**incident, "until": behind}]}
    seconds = [{**SECOND, "at": behind}]
    await post(site, posted(batch(at=behind, seconds=seconds, devices=[sick]), sent=behind))
    ((_, taken),) = cluster.batches
    times = [taken["at"], taken["seconds"][0]["at"]]
    times += [each["at"] for each in taken["devices"][0]["incidents"]]
    for at in times:
        assert abs(datetime.now(UTC) - datetime.fromisoformat(at)) < timedelta(seconds=60)
    assert taken["devices"][0]["incidents"][0]["until"] is None
    assert "The clock of node n1" in str(site.service.services.alerts())
    await post(site, posted(batch(2)))  # the one before was slow on its way
    assert "clock" not in str(site.service.services.alerts())


async def test_gpu_nodes_whose_agent_is_silent_are_named_but_not_all_of_a_hundred() -> None:
    now = [datetime(2026, 5, 4, tzinfo=UTC)]
    agents = Agents(Cluster(), clock=lambda: now[0])
    nodes = [f"n{number}" for number in range(1, 101)]
    assert agents.problems(nodes) == [], "an agent has a minute to come"
    now[0] += timedelta(seconds=61)
    (sentence,) = agents.problems(nodes)
    assert sentence.endswith("on GPU nodes: n1, n10, n100, n11, n12 and 95 more.")
    sent = now[0].isoformat()
    post = AgentPostBody.model_validate(posted(batch(), sent=sent)).root
    agents.take("n2", post)
    assert agents.problems(["n1", "n2"]) == ["No agent has been heard for 60 s on GPU nodes: n1."]
    now[0] += timedelta(seconds=61)
    assert "n1, n2." in agents.problems(["n1", "n2"])[0]
    assert agents.problems([]) == [], "a node that left needs no agent"
