"""Keeps leases, their history and the policy versions: SQLAlchemy models and alembic migrations.

``upgrade(url)`` brings a database to this version's tables; ``Store.open(url)`` becomes its one
writer.  SQLite files by default, PostgreSQL in production.
"""

from gpulease.store.database import backup as backup
from gpulease.store.database import reading as reading
from gpulease.store.database import restore as restore
from gpulease.store.database import upgrade as upgrade
from gpulease.store.history import PlanRecord as PlanRecord
from gpulease.store.models import AuditRecord as AuditRecord
from gpulease.store.models import Change as Change
from gpulease.store.models import EvidenceMinute as EvidenceMinute
from gpulease.store.models import IdempotencyKey as IdempotencyKey
from gpulease.store.models import PolicyVersion as PolicyVersion
from gpulease.store.models import TransitionRecord as TransitionRecord
from gpulease.store.models import VerdictChange as VerdictChange
from gpulease.store.retention import Ages as Ages
from gpulease.store.runs import RunChange as RunChange
from gpulease.store.runs import RunEvent as RunEvent
from gpulease.store.store import Store as Store
from gpulease.store.writing import key_reused as key_reused
