"""Runs migrations on the connection that ``store.migrate`` passes in, in its transaction."""

from __future__ import annotations

from alembic import context

from gpulease.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
