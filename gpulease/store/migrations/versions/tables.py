"""Make the tables as the models have them.

No version is released, so no database has other tables.  With the first change of a table after a
release, the tables of that release are written out here.
"""

from __future__ import annotations

from alembic import op

from gpulease.store.models import Base

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    Base.metadata.create_all(op.get_bind(), checkfirst=False)  # one that is there is somebody's
