"""``agents/batches``: what a GPU node's agent saw."""

from __future__ import annotations

from gpulease.service.agents import resources_of
from gpulease.service.rest.answering import Answers
from gpulease.service.rest.operations import answers
from gpulease.service.rest.scopes import AGENT_TOKEN, needs_scope
from gpulease.service.rest.versions import check_protocol
from gpulease.service.schemas.bodies import AgentPostBody
from gpulease.service.schemas.shapes import BatchesTaken

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
