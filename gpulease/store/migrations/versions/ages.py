"""Make what is old easy to find, and keep a lease's sums when its minutes go.

The indexes are of the columns by which old rows, and pages of history, are looked for: without
them each look reads the whole history.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add two columns and six indexes."""
    with op.batch_alter_table("leases") as table:
        for name in ("busy", "watched"):
            table.add_column(sa.Column(name, sa.Float, nullable=False, server_default="0"))
    op.create_index("ix_leases_ended", "leases", ["ended", "id"])
    op.create_index("ix_leases_nominated_for", "leases", ["nominated_for"])
    op.create_index("ix_transitions_why", "transitions", ["why", "at"])
    op.create_index("ix_verdicts_at", "verdicts", ["at"])
    op.create_index("ix_evidence_minutes_minute", "evidence_minutes", ["minute", "lease_id"])
    op.create_index("ix_idempotency_lease", "idempotency_keys", ["lease_id"])
