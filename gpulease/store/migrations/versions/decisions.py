"""Keep of a plan what it decided, and no snapshots: plans that were kept before go."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Drop what told whole snapshots from differences."""
    op.execute("DELETE FROM plans")
    op.drop_index("ix_plans_whole", "plans")
    with op.batch_alter_table("plans") as plans:
        plans.drop_column("whole")
