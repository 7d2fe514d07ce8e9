"""The event that the notebook front end gets: what kernels get on the bus, as it comes."""

from __future__ import annotations

from typing import Any

LEASE_SCHEMA_ID = "urn:gpulease:lab:lease:v1"

LEASE_SCHEMA: dict[str, Any] = {
    "$id": LEASE_SCHEMA_ID,
    "version": "1",
    "title": "A change of this server's GPU leases",
    "description": "A snapshot, one changed lease, changed classes, messages, or the link.",
    "type": "object",
    "properties": {
        "event": {"enum": ["snapshot", "lease", "classes", "messages", "link"], "title": "Kind"},
        "leases": {"type": "array", "title": "All leases (snapshot)"},
        "lease": {"type": "object", "title": "The changed lease"},
        "classes": {"type": "array", "title": "GPU classes with what is free"},
        "messages": {"type": "array", "title": "What instructors and admins tell this person"},
        "up": {"type": "boolean", "title": "Whether the lease service is connected"},
    },
    "required": ["event"],
}
