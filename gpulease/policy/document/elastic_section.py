"""How a pool grows, in the policy document::

    elastic: {max: 16, firm: 4, provision_time: 6m, max_pending: 10, spot: false}

Owns its form.  Only ``max`` has no default.
"""

from __future__ import annotations

from typing import Any, Final

from gpulease.policy.document.nodes import Reader
from gpulease.policy.pods import Elastic
from gpulease.policy.units import format_duration
from gpulease.texts import Text

ELASTIC: Final = ("max", "firm", "provision_time", "max_pending", "spot")


def read_elastic(pool: Reader) -> Elastic | None:
    """Read a pool's section, ``None`` where it has none; what is wrong is noted."""
    if "elastic" not in pool.names:
        return None
    section = pool.section("elastic", ELASTIC)
    if "max" not in section.names:
        pool.wrong(
            "elastic",
            Text("It lacks `max`: how many devices the pool may have at most."),
            Text("Write for example `elastic: {max: 16}`."),
        )
    found = Elastic(
        max=section.whole("max", 1, least=1),
        firm=section.whole("firm", Elastic.firm, least=0),
        provision_time=section.duration("provision_time", Elastic.provision_time, least=1),
        max_pending=section.whole("max_pending", Elastic.max_pending, least=1),
        spot=section.flag("spot", Elastic.spot),
    )
    if found.firm > found.max:
        section.wrong(
            "firm",
            Text("The pool has {max} devices at most.", max=found.max),
            Text("Name no more of them than that."),
        )
    return found


def elastic_tree(elastic: Elastic | None) -> dict[str, Any]:
    """Return the section as the document has it, without what is as by default."""
    if elastic is None:
        return {}
    base = Elastic(elastic.max)
    tree: dict[str, Any] = {"max": elastic.max}
    for name in ELASTIC[1:]:
        value = getattr(elastic, name)
        if value != getattr(base, name):
            tree[name] = format_duration(value) if isinstance(value, float) else value
    return {"elastic": tree}
