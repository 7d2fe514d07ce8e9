"""Make the tables of whole notebooks that run, and of what happened to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create both."""
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("cleared", sa.Boolean, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("ended", _TIME, nullable=True),
        sa.Column("record", sa.JSON, nullable=False),
    )
    op.create_index("ix_runs_state", "runs", ["state"])
    op.create_index("ix_runs_created", "runs", ["created", "id"])
    op.create_index("ix_runs_user", "runs", ["user", "created"])
    op.create_index("ix_runs_ended", "runs", ["ended"])
    op.create_table(
        "run_events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("ix_run_events_run", "run_events", ["run_id", "id"])
