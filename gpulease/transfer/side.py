"""One side's namespace: what changed against what both have, and one commit for what comes."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any

from gpulease.sides.hushed import hushed
from gpulease.sides.looks import is_a, name_of_type
from gpulease.sides.undisturbed import undisturbed

from . import commit, holders, leaves, loader, own, pyplot, sending, state, stayed
from .api import Absent, PackedComponent, Parcel, Receiver, StageError
from .by_class import copies
from .groups import Component
from .holders import is_kept, name_and_mark, unsent
from .loader import Staged
from .met import Met
from .roots import Hidden, Roots, is_of, meant, plain
from .sending import Going, Resting
from .survey import Survey, collector_waits, spread_refusals
from .tables import Counterparts


class Side:
    """One side's namespace; not thread safe.

    A switch is ``pack`` on one side, ``stage`` and ``commit`` on the other one, then
    ``acknowledge`` on the first; ``abandon`` leaves both as they were.
    """

    def __init__(self, label: str, namespace: dict[str, Any], hidden: Hidden = (),
                 results: dict[int, Any] | None = None) -> None:  # fmt: skip
        self.label = label
        self.ns = namespace
        self._roots = Roots(namespace, hidden, {} if results is None else results)
        self._classes = Counterparts()
        self._others = Counterparts()
        self._stays = Counterparts()
        self._sealed = sending.SealedHere()
        self._own = own.OwnRoots()
        #: What is bound while a cell runs in place of values that are away (see ``structure``).
        self.shown: dict[str, Any] = {}
        self.forget_peer()

    def forget_peer(self, holds: Mapping[str, Absent] | None = None) -> None:
        """The other side is new and holds nothing but these."""
        token = secrets.token_hex(4)
        stayed.let_go([each for each in self._stays.values() if is_a(each, stayed.Stayed)])
        self._stays = Counterparts(prefix=self.label + token, keeps=True)
        #: What both sides have: digest by roots.
        self._base: dict[frozenset[str], bytes] = {}
        #: Classes that came with names which share something with them, by id: kept while both
        #: sides have these as they came, for here nothing else may name such a class.
        self._with_names: dict[str, type] = {}
        #: My objects that something outside holds here, and my counterparts of the other side's.
        self._pins: dict[str, Any] = {}
        #: By pin, the variable that its object was in; "" for none.
        self._held_under: dict[str, str] = {}
        self.replaced = commit.Replaced(
            self.ns, lambda: [self._pins, self._counterparts, *self._copies()]
        )
        self._counterparts: dict[str, Any] = {}
        self._away = {**(holds or {}), **self._sealed.away()}
        self._pin_prefix, self._pin_count = self.label + token, 0
        #: By id, digests of the pieces of large memory that both sides have.
        self._pieces: dict[str, bytes] = {}
        #: Large components of the last look, by roots.
        self._resting: dict[frozenset[str], Resting] = {}
        #: By root, where what was here at the last look, or has come since, led to.
        self._led: dict[str, sending.Leads] = {}
        #: The roots of which something outside held something then.
        self._were_held: list[str] = []
        #: Bytes of each component at the last look, by roots.
        self.sizes: dict[frozenset[str], int] = {}

    # ---- looking

    def names(self) -> list[str]:
        """Return the person's names here, in their order."""
        return list(self._roots.values())

    def away(self) -> Mapping[str, Absent]:
        """Return the names that are not bound here, and why."""
        shown, ns = self.shown, self.ns
        for name in [name for name in self._away if name in ns]:
            if name not in shown or shown[name] is not ns[name]:
                del self._away[name]  # bound here again: this one counts
                self._sealed.discard(name)
        return self._away

    def lacking(self, names: Collection[str]) -> set[str]:
        """Return which of the names that these lead to are not bound here ("*": all of them)."""
        if not self.away():
            return set()
        if "*" in names:
            return set(self._away)
        rest = {name: each for each in self._rested() for name in each.component().names}
        found = meant(names, self._away)
        with collector_waits():
            reads = sending.follow(found, set(self.names()), rest, self._survey)
        return set(self._away) if reads is None else reads & self._away.keys()

    def changed(self) -> list[frozenset[str]]:
        """Return the roots of each component that the other side lacks as it is here.

        Among them are pins of this side's, and the names of classes.
        """
        with collector_waits():
            found = [each for each in self._survey().components if self._differs(each)]
            return [plain(each.roots) | self._other_roots(each) for each in found]

    def _other_roots(self, component: Component) -> set[str]:
        """Return this side's pins in a component, and the variables that are its classes."""
        pins = {f"p:{pin}" for pin, obj in self._pins.items() if component.has(id(obj))}
        oids = {root[2:] for root in component.roots if root[0] == "c"}
        values = self._roots.values().items() if oids else ()
        return pins | {f"n:{name}" for name, obj in values if self._classes.find(obj) in oids}

    @property
    def agreed(self) -> Collection[frozenset[str]]:
        """Return the roots of each component that both sides have."""
        return self._base.keys()

    def _survey(self, only: Collection[str] | None = None, rest: Collection[Resting] = (),
                structure_of: str | None = None) -> Survey:  # fmt: skip
        """Look at all roots but those that rest, or at whole components with these roots."""
        met = Met(self.label, self.ns, self._classes, self._others, self._stays)
        met.structure_of = structure_of
        values = {"n:" + name: value for name, value in self._roots.values().items()}
        values |= self._own.values(self._own.names(self.ns))
        if only is not None:
            values = {root: value for root, value in values.items() if root in only}
            asked = {root[2:] for root in only if root[0] == "c"}
            met.met_classes |= {oid for oid in asked if self._classes.get(oid) is not None}
        else:
            agreed = [key for key in self._base if not key.isdisjoint(values)]
            met.met_classes |= self._classes_beside_names(agreed).keys()
        met.met_classes |= self._sealed.classes()
        for each in rest:
            met.met_classes |= each.classes
        for root in frozenset().union(*(each.roots for each in rest)):
            values.pop(root, None)
        survey = Survey(met, values, self._roots.known())
        with hushed():  # nothing is pickled in one process, so nobody is warned that it is
            survey.run({"p:" + pin: obj for pin, obj in self._counterparts.items()})
        survey.components += [each.component() for each in rest]
        return survey

    def _classes_beside_names(self, keys: Iterable[frozenset[str]]) -> dict[str, type]:
        """Return the classes among roots that are in one component with others, by id."""
        oids = {root[2:] for key in keys if len(key) > 1 for root in key if root[0] == "c"}
        return {oid: cls for oid in oids if (cls := self._classes.get(oid)) is not None}

    def _copies(self) -> list[dict[str, Any]]:
        return copies(self._classes.everything(), self.ns)

    def _differs(self, component: Component) -> bool:
        return component.error is None and not self._is_agreed(component)

    def _is_agreed(self, component: Component) -> bool:
        known = self._base.get(plain(component.roots))
        return known is not None and known == component.digest  # only what is asked for is hashed

    # ---- going

    def pack(self, needed: Collection[str] | None = None, *, hand_over: bool = True,
             small: int = 0, receiver: Receiver | None = None,
             reached: Collection[str] | None = None) -> Parcel:  # fmt: skip
        """Pack what changed, or what ``needed`` leads to; nothing is different afterwards.

        ``reached`` are the names that code which ran here since the last commit on either side
        reads or writes, "*" for all of them; None where that is not known, or where a thread, a
        task or a callback may have run.

        Of what changed, components of ``small`` bytes and fewer travel without being needed.  No
        more bytes travel than the ``receiver`` has room for.
        """
        with collector_waits():
            self.away()
            self._sealed.forget_nameless()
            if reached is None or "*" in reached:
                self._resting.clear()
            # A look is over before the collector runs.
            return self._pack(needed, hand_over, small, reached or (), receiver)

    def _look(
        self, needed: Collection[str] | None, small: int, reached: Collection[str]
    ) -> tuple[Survey, dict[frozenset[str], list[Any]], set[frozenset[str]] | None]:
        """Look at all that may have changed or travels; return also what is held, and needed."""
        if self._counterparts or any(True for _ in self._stays.values()):
            self._resting.clear()  # what stays here, or is held there, may lead anywhere
        bound = {"n:" + name for name in self._roots.values()}
        rested = {each.roots for each in self._rested()}
        self._resting = {
            key: each
            for key, each in self._resting.items()
            if key in rested
            or (each.size > small and key <= bound and (each.digest or key not in self._base))
        }
        while True:
            survey = self._survey(rest=self._resting.values())
            held = self._held(survey)
            now_held = [r for each in survey.components if held[each.roots] for r in each.roots]
            wanted = self._wanted(survey.components, needed)
            awake = self._awake(survey, now_held, reached) & self._resting.keys()
            newer = self._resting.keys() - rested
            awake |= newer if wanted is None else newer & wanted
            if not awake:
                break
            for key in awake:
                del self._resting[key]
            del survey, held
        self.sizes = {plain(each.roots): each.nbytes for each in survey.components}
        self._led = sending.leads(survey.components)
        self._were_held = now_held
        for each in survey.components:
            if not each.rests and sending.can_rest(each, held[each.roots]):
                is_compared = sending.is_due(each, wanted, small) or each.roots in self._base
                self._resting[each.roots] = sending.rest(each, is_compared=is_compared)
        return survey, held, wanted

    def _wanted(
        self, components: Collection[Component], needed: Collection[str] | None
    ) -> set[frozenset[str]] | None:
        """Return the components that these names lead to, None for all."""
        if needed is None:
            return None
        asked = ["n:" + name for name in meant(needed, self.names())]
        return sending.closure(components, asked)

    def _rested(self) -> list[Resting]:
        """Return the large components that both sides have as they were at the last look."""
        found = self._resting.items()
        return [each for key, each in found if self._base.get(key) == each.digest]

    def _awake(
        self, survey: Survey, now_held: list[str], reached: Collection[str]
    ) -> Collection[frozenset[str]]:
        """Return the components that code which ran here may have reached."""
        components = survey.components
        if any(each.error is not None for each in components):
            return self._resting.keys()
        names = meant(reached, self.names())
        figures = {name for name in names if pyplot.FIGURE.fullmatch(name)}
        roots = ["n:" + name for name in names - figures]
        # What something outside holds may have been called or changed through that.
        roots += now_held + self._were_held
        led = sending.led_to(self._led, roots, attrgetter("reads"))
        found = sending.closure(components, led)
        ran = (each for each in components if figures and each.roots in found)
        if any(each.rests or pyplot.may_draw(each.kinds, each.of_kinds) for each in ran):
            found |= sending.closure(components, ["n:" + name for name in figures])
        return found

    def _pack(self, needed: Collection[str] | None, hand_over: bool, small: int,
              reached: Collection[str], receiver: Receiver | None) -> Parcel:  # fmt: skip
        survey, held, wanted = self._look(needed, small if hand_over else -1, reached)
        names_own = self._own.names(self.ns)
        for name in self._own.reloaded(names_own):
            for key in [key for key in self._base if any(is_of(root, name) for root in key)]:
                del self._base[key]
        if hand_over:
            self._pins = holders.still_held(self._pins, survey.components, held)
        self._held_under = {pin: self._held_under[pin] for pin in self._pins}
        values = self._roots.values()
        parcel = Parcel(
            [], [], list(values) if hand_over else None, {}, frozenset(self._away),
            frozenset(), state.read() if hand_over else {}, own.loads(names_own),
        )  # fmt: skip
        going = Going(wanted, small if hand_over else -1, receiver, dict(self._pieces))
        going.pin_of = {id(obj): pin for pin, obj in self._pins.items()}
        going.used = self._sealed.classes()
        going.kinds = {name: type(value) for name, value in values.items()}
        refused = spread_refusals(survey.components, values)
        for component in going.in_order(unsent(survey.components, self._base.values())):
            if (reason := refused.get(component.roots)) is not None:
                parcel.away.update(going.absent(component, reason, can_come=False))
            else:
                self._put(parcel, survey, component, held[component.roots], going)
        keys = [plain(frozenset(each.roots)) for each in parcel.components]
        met = {oid for key in keys for oid in parcel.classes[key]}
        met |= {r[2:] for each in parcel.components for r in each.roots if r[0] == "c"}
        self._sealed.pass_on(parcel, self._base, met)
        parcel.stays = self._what_stays(values)
        parcel.shells = sending.shells(met, self._classes, survey.met)
        parcel.pins = frozenset(self._pins)
        return parcel

    def _put(self, parcel: Parcel, survey: Survey, component: Component, held: list[Any],
             going: Going) -> None:  # fmt: skip
        """Put a component into a parcel, or what the other side is to know of it."""
        key = plain(component.roots)
        pin_of = going.pin_of
        fresh = [obj for obj in held if id(obj) not in pin_of]
        is_same = self._is_agreed(component) and not fresh
        # What is held there may be called at any time.
        if not (is_same or self._pins_in(component, kept=False) or going.takes(component)):
            parcel.away.update(going.absent(component, "it is not needed yet", can_come=True))
            parcel.memories |= going.kept(component)
            return
        going.used |= component.classes
        parcel.digests[key] = component.digest
        parcel.memories |= component.pieces
        parcel.classes[key] = component.classes
        if is_same:
            return
        for obj in fresh:
            self._pin_count += 1
            name, mark = name_and_mark(component, obj, self.ns)
            pin = pin_of[id(obj)] = f"{self._pin_prefix}.{self._pin_count}{mark}"
            self._pins[pin], self._held_under[pin] = obj, name
        parcel.components.append(self._ship(survey, component, held, going))

    def _what_stays(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the names whose very value cannot leave this side, and what it is, in words."""
        kept = {id(each) for each in self._stays.values() if not is_a(each, stayed.Stayed)}
        return {
            name: leaves.leaf_kind(value) or name_of_type(type(value))
            for name, value in values.items()
            if id(value) in kept
        }

    def _ship(self, survey: Survey, component: Component, objects: list[Any],
              going: Going) -> PackedComponent:  # fmt: skip
        same = component.is_in_order() and not objects and all(r[0] == "n" for r in component.roots)
        pinned = {pin: self._counterparts[pin] for pin in self._pins_in(component, kept=False)}
        same = same and not pinned
        kept = tuple(self._pins_in(component, kept=True))  # packed to fill others it has them not
        if pinned:
            component = survey.pack(component.roots, pinned)
        elif any(component.members[id(obj)][0] is None for obj in objects):
            component = survey.pack(component.roots)
        if component.error is not None:
            raise component.error
        memories, forms, parts = going.cut(component)
        for oid in component.large:  # unless this is acknowledged, all of it goes the next time
            self._pieces.pop(oid, None)
        places = (
            (component.members.get(id(obj), (None,))[0], going.pin_of[id(obj)]) for obj in objects
        )
        return PackedComponent(
            component.order, component.stream, component.buffers + parts,
            [(place, pin) for place, pin in places if place is not None],
            component.filled, kept, component.deep, same,
            component.nbytes if same and component.roots in self._resting else 0, memories, forms,
        )  # fmt: skip

    def _pins_in(self, component: Component, *, kept: bool) -> list[str]:
        """Return the other side's pins of what is in a component: of what it keeps, or fills."""
        found = self._counterparts.items()
        return [pin for pin, obj in found if is_kept(pin) is kept and component.has(id(obj))]

    def _held(self, survey: Survey) -> dict[frozenset[str], list[Any]]:
        """Return for each component what something outside holds of it."""
        # Only numbers are kept: a list of the objects would hold them.
        known: Counter[int] = Counter(map(id, self._roots.held()))
        known.update(map(id, own.held()))
        known.update(map(id, self._with_names.values()))
        for table in (survey.values, self._pins, self._counterparts, *self._copies()):
            known.update(map(id, table.values()))
        for held_here in (self._stays.values(), self._others.values(), survey.met.memory.holds()):
            known.update(map(id, held_here))
        out: dict[frozenset[str], list[Any]] = {e.roots: [] for e in survey.components if e.rests}
        for component in (each for each in survey.components if not each.rests):
            found = (self._classes.get(root[2:]) for root in component.roots if root[0] == "c")
            spaces = [vars(cls) for cls in found if cls is not None]  # one refused may be gone
            mine = Counter(map(id, component.large.values()))
            mine.update(id(value) for space in spaces for value in space.values())
            known.update(mine)  # and out again: there may be thousands of components, and of names
            out[component.roots] = [] if component.error else holders.held(component, known)
            known.subtract(mine)
        return out

    def acknowledge(self, parcel: Parcel, *, surely: bool = True) -> None:
        """The other side has committed what ``pack`` gave, or, not ``surely``, may have."""
        if not surely:
            for component in parcel.components:
                self._base.pop(plain(frozenset(component.roots)), None)
            return
        self._agree_on_memory(parcel)
        self._base = {**(self._base if parcel.names is None else {}), **parcel.digests}

    def _agree_on_memory(self, parcel: Parcel) -> None:
        if parcel.names is not None:
            self._pieces.clear()
        self._pieces |= parcel.memories

    # ---- coming

    def stage(self, parcel: Parcel) -> Staged:
        """Load a parcel beside what is here; raises ``StageError`` and leaves all as it was."""
        return self._stage(parcel, self._others)

    def _stage(self, parcel: Parcel, others: Counterparts) -> Staged:
        here = loader.Here(
            self.label, self.ns, self._roots.known(), (self._classes, others, self._stays),
            self._pins,
        )  # fmt: skip
        with hushed():  # what is made again here, or imported for it, was made by a cell there
            return loader.stage(parcel, here, self._classes)

    def abandon(self, staged: Staged) -> None:
        """Drop what was loaded; all is as it was before ``stage``."""
        staged.undo.run()

    def commit(self, staged: Staged) -> None:
        """Put what was loaded in place: all of it, or nothing where it raises."""
        with undisturbed(), collector_waits():
            pins = [(self._held_under[pin], obj) for pin, obj in self._pins.items()]
            before = commit.left_behind(staged.parcel, self._roots.values(), pins)
            try:
                commit.apply(staged, self._roots, self._pins)
            except StageError as error:
                for pin in [pin for pin in self._pins if f"p:{pin}" in error.roots]:
                    self.replaced.add(pin, self._held_under[pin], self._pins[pin])
                raise
            go_on, away = {*staged.lasting.values()}, staged.parcel.away
            self.replaced.arrived([root[2:] for root in staged.values], go_on)
            for number, (name, obj, ids) in enumerate(before):
                if go_on.isdisjoint(ids):
                    self.replaced.add(f".{number}", name, obj, ids if name in away else None)
            del before, pins
            self._after(staged)

    def _after(self, staged: Staged) -> None:
        parcel = staged.parcel
        self._agree_on_memory(parcel)
        if parcel.names is not None:
            self._away = dict(parcel.away)  # what the sender deleted since is away no more
            for pin in self._counterparts.keys() - parcel.pins:
                del self._counterparts[pin]
        else:
            away = {n: each for n, each in self._away.items() if f"n:{n}" not in staged.values}
            self._away = {name: parcel.away.get(name, each) for name, each in away.items()}
        self._counterparts.update(staged.counterparts)
        for pin in (pin for each in parcel.components for pin in each.kept):
            if pin in self._pins:
                self.replaced.add(pin, self._held_under[pin], self._pins.pop(pin))
        arrived = {plain(frozenset(each.roots)): each.same_there for each in parcel.components}
        fresh = {root for each in parcel.components for root in each.roots}
        self._resting = {k: each for k, each in self._resting.items() if fresh.isdisjoint(k)}
        self._sealed.keep(staged, self._classes)
        self._away |= self._sealed.away()
        self._with_names = self._classes_beside_names((*arrived, *self._base))
        staged.values.clear()
        staged.contents.clear()
        staged.counterparts.clear()
        known = set(parcel.digests)
        self._base = {
            key: digest
            for key, digest in self._base.items()
            if (parcel.names is None or key in known) and key not in arrived
        }
        same = {key for key, is_same in arrived.items() if is_same}
        same |= self._sealed.keys() & arrived.keys()
        self._base |= {key: parcel.digests[key] for key in same}
        opened = [each for each in parcel.components if frozenset(each.roots) not in self._sealed]
        data = [sending.arrived(each, parcel) for each in opened if each.same_there]
        self._led |= {root: each for each in data for root in each.roots}
        self._resting |= {each.roots: each for each in data if each.size}
        other = arrived.keys() - same
        if other or self._pins:
            self._look_again(other)  # nothing of that look holds what the tables are asked for
        for table in (self._classes, self._others, self._stays):
            table.prune()

    def _look_again(self, arrived: Collection[frozenset[str]]) -> None:
        """Make what arrived the baseline: this side's own pickle of it."""
        only = {root for key in arrived for root in key}
        survey = self._survey(None if self._pins else only)
        self.sizes |= {plain(each.roots): each.nbytes for each in survey.components}
        self._led |= sending.leads(survey.components)
        for each in survey.components:
            if (key := plain(each.roots)) in arrived and each.error is None:
                self._base[key] = each.digest
        if self._pins:  # what nothing holds any more goes at once: a graph, say
            held = self._held(survey)
            self._pins = holders.still_held(self._pins, survey.components, held)
