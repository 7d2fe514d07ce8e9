"""Make the first tables.

Names its own types, for a migration must not change when the models do.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create every table of the first version."""
    _leases()
    _history()
    _service()
    _evidence()
    _plans()
    _usage()
    _reservations()
    _runs()


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("server", sa.String(255), nullable=False),
        sa.Column("gpu_class", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("active_since", _TIME),
        sa.Column("ended", _TIME),
        sa.Column("nominated_for", sa.String(64)),
        sa.Column("record", sa.JSON, nullable=False),
        sa.Column("busy", sa.Float, nullable=False, server_default="0"),
        sa.Column("watched", sa.Float, nullable=False, server_default="0"),
    )
    op.create_index("ix_leases_ended", "leases", ["ended", "id"])
    op.create_index("ix_leases_nominated_for", "leases", ["nominated_for"])
    op.create_index("ix_leases_state", "leases", ["state"])
    op.create_index("ix_leases_created", "leases", ["created", "id"])
    op.create_index("ix_leases_user", "leases", ["user", "created"])
    op.create_table(
        "lease_groups",
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
    )
    op.create_index("ix_lease_groups_name", "lease_groups", ["name"])
    op.create_table(
        "grants",
        sa.Column("device", sa.String(512), primary_key=True),
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), nullable=False),
    )


def _history() -> None:
    op.create_table(
        "transitions",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("why", sa.String(64), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("target", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("plan", sa.Integer),
    )
    op.create_index("ix_transitions_lease", "transitions", ["lease_id", "version"])
    op.create_index("ix_transitions_why", "transitions", ["why", "at"])
    op.create_table(
        "policy_versions",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )


def _service() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("who", sa.String(255), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), nullable=False),
        sa.Column("expires", _TIME, nullable=False),
    )
    op.create_index("ix_idempotency_expires", "idempotency_keys", ["expires"])
    op.create_index("ix_idempotency_lease", "idempotency_keys", ["lease_id"])


def _evidence() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
    )
    op.create_index("ix_verdicts_at", "verdicts", ["at"])
    op.create_index("ix_verdicts_lease", "verdicts", ["lease_id", "at"])
    op.create_table(
        "evidence_minutes",
        sa.Column("lease_id", sa.String(64), sa.ForeignKey("leases.id"), primary_key=True),
        sa.Column("minute", _TIME, primary_key=True),
        sa.Column("busy", sa.Float, nullable=False),
        sa.Column("quiet", sa.Float, nullable=False),
        sa.Column("idle", sa.Float, nullable=False),
        sa.Column("unknown", sa.Float, nullable=False),
        sa.Column("peak", sa.Float),
    )
    op.create_index("ix_evidence_minutes_minute", "evidence_minutes", ["minute", "lease_id"])


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("before", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_plans_at", "plans", ["at"])
    op.create_index("ix_plans_before", "plans", ["before"])
    op.create_index("ix_plans_whole", "plans", ["whole", "id"])


def _usage() -> None:
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


def _reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("group_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
    )
    op.create_index("ix_reservations_group", "reservations", ["group_name", "name"])
    op.create_table(
        "reservation_events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "reservation_id", sa.String(64), sa.ForeignKey("reservations.id"), nullable=False
        ),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("ix_reservation_events", "reservation_events", ["reservation_id", "id"])
    op.create_index("ix_reservation_events_at", "reservation_events", ["at"])


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("cleared", sa.Boolean, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("ended", _TIME),
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
