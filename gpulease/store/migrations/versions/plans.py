"""Make the table of plans, and let changes say of which plan they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create it, empty, and an index by which old events of reservations are found."""
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("before", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_plans_at", "plans", ["at"])
    op.create_index("ix_plans_before", "plans", ["before"])
    op.create_index("ix_plans_whole", "plans", ["whole", "id"])
    with op.batch_alter_table("transitions") as table:
        table.add_column(sa.Column("plan", sa.Integer, nullable=True))
    op.create_index("ix_reservation_events_at", "reservation_events", ["at"])
