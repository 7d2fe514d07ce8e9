"""Keeps leases, their history and the policy versions: SQLAlchemy models and alembic migrations.

``upgrade(url)`` brings a database to this version's tables; ``Store.open(url)`` becomes its one
writer.  SQLite files by default, PostgreSQL in production.
"""

from gpulease.store.database import backup, reading, restore, upgrade
from gpulease.store.history import PlanRecord
from gpulease.store.history import pack as pack_plan
from gpulease.store.models import (
    AuditRecord,
    Change,
    EvidenceMinute,
    IdempotencyKey,
    Page,
    PolicyVersion,
    TransitionRecord,
    VerdictChange,
)
from gpulease.store.retention import Ages
from gpulease.store.runs import RunChange, RunEvent
from gpulease.store.store import Store
from gpulease.store.writing import key_reused

__all__ = [
    "Ages",
    "AuditRecord",
    "Change",
    "EvidenceMinute",
    "IdempotencyKey",
    "Page",
    "PlanRecord",
    "PolicyVersion",
    "RunChange",
    "RunEvent",
    "Store",
    "TransitionRecord",
    "VerdictChange",
    "backup",
    "key_reused",
    "pack_plan",
    "reading",
    "restore",
    "upgrade",
]
