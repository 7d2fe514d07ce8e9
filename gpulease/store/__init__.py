"""Keeps leases, their history and the policy versions: SQLAlchemy models and alembic migrations."""
