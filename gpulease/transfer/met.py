"""What the picklers of one survey share."""

from __future__ import annotations

from typing import Any

from . import anatomy, lasting, rebuild
from .memory import Memory
from .refuse import Limit
from .tables import Counterparts
from .ways import Reduce


class Met:
    """What one survey's picklers share: the side's tables, and what was met."""

    def __init__(self, label: str, namespace: dict[str, Any], classes: Counterparts,
                 others: Counterparts, stays: Counterparts) -> None:  # fmt: skip
        self.label = label
        self.namespace = namespace
        self.classes = classes
        #: Markers and type variables.
        self.others = others
        self.stays = stays
        self.memory = Memory()
        #: What a library's room notes of this survey.
        self.notes: dict[str, Any] = {}
        #: Why objects stay, by ``id``, where that is known of the whole survey only.
        self.refused: dict[int, str] = {}
        #: How objects of a class are reduced, None where no table says it.
        self.ways: dict[type, Reduce | None] = {}
        #: Whether every instance of a class is its attributes and the builtin under it.
        self.raw: dict[type, bool] = {}
        #: Why objects of a class are not packed, None where they are.
        self.refused_kinds: dict[type, str | None] = {}
        #: How much may be packed, None for all.
        self.limit: Limit | None = None
        #: Whose structure is packed, in words: large values are left out.  Else None.
        self.structure_of: str | None = None
        #: Classes met since somebody last looked.
        self.met_classes: set[str] = set()
        #: By the id of a class's dictionary: the annotations of 3.14 are functions over it.
        self.class_spaces: dict[int, type] = {}
        #: Objects that are found again by a module and a name.
        self.named: dict[int, Any] = {}

    def class_id(self, cls: type) -> str:
        """Return the id of a class of the notebook, which was met."""
        oid = self.classes.id_of(cls)
        self.met_classes.add(oid)
        self.note_class_space(cls)
        return oid

    def note_class_space(self, cls: type) -> None:
        """Note whose attributes a cell may hold, before what is in the class is looked at."""
        self.class_spaces[id(anatomy.space_of_class(cls))] = cls

    def constant(self, obj: Any) -> tuple[str, str] | None:
        """Return where an installed library has an object for good."""
        found = lasting.instances(type(obj)).get(id(obj))
        if found is not None and rebuild.constant(*found) is not obj:  # another has that id now
            return None
        if found is not None:
            self.named[id(obj)] = obj
        return found
