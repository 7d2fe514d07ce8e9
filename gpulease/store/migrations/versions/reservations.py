"""Make the tables of reservations and of what happened to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create both."""
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("group_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
    )
    op.create_index("ix_reservations_group", "reservations", ["group_name", "name"])
    op.create_table(
        "reservation_events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "reservation_id", sa.String(64), sa.ForeignKey("reservations.id"), nullable=False
        ),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("ix_reservation_events", "reservation_events", ["reservation_id", "id"])
