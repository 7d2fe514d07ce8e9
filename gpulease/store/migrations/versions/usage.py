"""Make the table of what was charged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create it, empty: what ran before was not charged."""
    op.create_table(
        "usage",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("lease_id", sa.String(64), nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("gpu_class", sa.String(64), nullable=False),
        sa.Column("pool", sa.String(64), nullable=False),
        sa.Column("units", sa.Integer, nullable=False),
        sa.Column("price", sa.Float, nullable=False),
        sa.Column("began", _TIME, nullable=False),
        sa.Column("ended", _TIME, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
    )
    op.create_index("ix_usage_ended", "usage", ["ended"])
    op.create_index("ix_usage_project", "usage", ["project", "ended"])
    op.create_index("ix_usage_user", "usage", ["user", "ended"])
