"""What a node agent may post: the shape of ``protocol``, and what a shape cannot say."""

from __future__ import annotations

from pydantic import ConfigDict, RootModel, field_validator

from gpulease.policy.evidence.quarantine import KINDS
from gpulease.protocol.agents import AgentPost


class AgentPostBody(RootModel[AgentPost]):
    """What a node agent saw since its last post: ``POST agents/batches``."""

    model_config = ConfigDict(strict=True, defer_build=True)

    @field_validator("root")
    @classmethod
    def _consistent(cls, post: AgentPost) -> AgentPost:
        for batch in post["batches"]:
            if any(each["use"] is None and not each.get("gap") for each in batch["seconds"]):
                raise ValueError("a second without use needs its gap")
            kinds = {fault["kind"] for each in batch["devices"] for fault in each["incidents"]}
            if not kinds <= KINDS.keys():
                raise ValueError("no such kind of incident")
        return post
