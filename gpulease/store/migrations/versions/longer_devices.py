"""Make room for the names of devices in a cluster: node, resource and number.

A node's name alone may be 253 characters long.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Lengthen the key of the grants."""
    with op.batch_alter_table("grants") as table:
        table.alter_column(
            "device",
            existing_type=sa.String(128),
            type_=sa.String(512),
            existing_nullable=False,
        )
