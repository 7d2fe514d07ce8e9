"""Take the service's secret out of the database: it has a key file of its own."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Forget it."""
    op.execute("DELETE FROM meta WHERE name = 'secret'")
