"""Make the tables as the models have them.

No version is released, so no database has other tables.  The first change of a table after a
release freezes this one: ``alembic revision --autogenerate`` writes the tables of that release.
"""

from __future__ import annotations

from alembic import op

from gpulease.store.models import Base

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    Base.metadata.create_all(op.get_bind(), checkfirst=False)  # one that is there is somebody's
