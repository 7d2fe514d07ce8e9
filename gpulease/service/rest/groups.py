"""REST of groups: whom one teaches, and what is told to them."""

from __future__ import annotations

from gpulease.protocol import MessageView
from gpulease.service.hubs.api import HubUnreachableError
from gpulease.service.hubs.auth import SCOPE_RESERVE
from gpulease.service.leases.commands import hub_unreachable, not_your_group
from gpulease.service.notices.messages import may_tell
from gpulease.service.rest.base import BaseHandler
from gpulease.service.rest.operations import answers
from gpulease.service.rest.scopes import needs_scope
from gpulease.service.schemas.bodies import EmptyBody, MessageBody
from gpulease.service.schemas.queries import MembersQuery
from gpulease.service.schemas.shapes import GroupView, Items


class Groups(BaseHandler):
    """``groups``: those that one may reserve for."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: Items[GroupView]}, refuses=(502,))
    async def get(self) -> None:
        """List the groups that you may reserve for.

        Raises:
            GPULeaseError: ``hub_unreachable`` (502).
        """
        asker = self.asker
        everywhere = asker.admin or asker.leads_all
        names = list(asker.leads)
        if everywhere or asker.leads_hub:
            try:
                found = await self.services.hub.groups(None if everywhere else asker.names)
            except HubUnreachableError as error:
                raise hub_unreachable() from error
            names = found if everywhere else sorted({*names, *found})
        self.answer({"items": [{"name": name} for name in names]})


class Members(BaseHandler):
    """``groups/members``: the members of one group."""

    @needs_scope(SCOPE_RESERVE)
    @answers({200: Items[str]}, query=MembersQuery, refuses=(502,))
    async def get(self) -> None:
        """List the names of a group's members.

        Raises:
            GPULeaseError: ``not_your_group`` (403), ``hub_unreachable`` (502).
        """
        group = self.query(MembersQuery).group
        if not may_tell(self.asker, group):
            raise not_your_group(group)
        try:
            names = await self.services.hub.members(group)
        except HubUnreachableError as error:
            raise hub_unreachable() from error
        self.answer({"items": names})


class MessageList(BaseHandler):
    """``messages``."""

    @needs_scope(SCOPE_RESERVE)
    @answers({201: MessageView}, body=MessageBody)
    async def post(self) -> None:
        """Show a text to the members of a group for a time."""
        body = self.parse(MessageBody)
        told = await self.services.messages.tell(self.asker, body.group, body.text, body.seconds)
        self.answer(told.view(), 201)


class OneMessage(BaseHandler):
    """``messages/{id}``."""

    @needs_scope(SCOPE_RESERVE)
    @answers({204: None}, body=EmptyBody)
    async def delete(self, message_id: str) -> None:
        """Delete a message; a repeat changes nothing."""
        self.parse(EmptyBody)
        await self.services.messages.withdraw(self.asker, message_id)
        self.set_status(204)
