"""What a person reads of their GPU between cells, in its order, and what takes a warning back."""

from __future__ import annotations

from typing import Any

from gpulease.kernel.notices import CellNote, Notices, end_words, last_word
from gpulease.protocol.service import EndView

LATER = "Your variables are here; the next %%gpu cell gets a GPU again."
SAID = "An admin ended it. They wrote: Maintenance."
END = EndView(reason="forced", sentence=SAID, note="Maintenance.", at="")


class Note(CellNote):
    """The last cell's note, where what stands under the cell is to be read."""

    def __init__(self) -> None:
        super().__init__(None, relay=None)  # type: ignore[arg-type]
        self.stands = ""

    def _show(self, sentence: str) -> None:
        self.stands = sentence


def notices() -> tuple[Notices, Note]:
    made = Notices()
    made.note = note = Note()
    return made, note


def test_each_sentence_is_taken_once_and_in_order() -> None:
    made = Notices()
    made.add("one", "two")
    made.add("three")
    assert made.take() == ["one", "two", "three"]
    assert made.take() == []


def test_of_what_was_missed_the_newest_state_is_read_and_nothing_twice() -> None:
    made, _ = notices()
    for lease in ("l1", "l2", "l3"):
        made.warn("The GPU is released at 10:00.")
        made.stays("The GPU stays yours.")
        made.add("x cannot leave.")
        made.lease_over(lease, "It was idle.", ["y is lost."])
    ended = "It was idle. The next %%gpu cell gets a GPU again."
    assert made.take() == ["x cannot leave.", "y is lost.", ended]
    made.lease_over("l4", "It was idle.", [])
    made.say_better("l4", END)
    made.stays("The GPU stays yours.")
    assert made.take() == ["The GPU stays yours."]


def test_a_warning_that_came_to_nothing_is_never_read() -> None:
    made, note = notices()
    made.warn("The GPU is released at 10:00.")
    made.warn("The GPU is released at 10:05.")
    assert note.stands == "The GPU is released at 10:05."
    made.add("something else")
    made.withdraw()
    assert (made.take(), note.stands) == (["something else"], "")


def test_the_end_takes_the_place_of_its_warning_and_names_what_is_lost() -> None:
    made, note = notices()
    made.warn("The GPU is released at 10:00.")
    made.lease_over("l1", "It was idle.", ["x is lost."])
    ended = "It was idle. The next %%gpu cell gets a GPU again."
    assert (made.take(), note.stands) == ([ended, "x is lost."], ended)


def test_the_services_words_replace_the_supervisors_while_they_are_unread() -> None:
    made, note = notices()
    made.lease_over("l1", last_word("forced"), [])
    made.say_better("l2", END)
    assert note.stands == f"The GPU was taken back by an administrator. {LATER}"
    made.say_better("l1", END)
    better = f"{SAID} {LATER}"
    assert (made.take(), note.stands) == ([better], better)
    made.say_better("l1", {**END, "note": "Too late."})
    assert (made.take(), note.stands) == ([], better)


def test_no_end_was_told_before_there_is_one() -> None:
    made, note = notices()
    made.add("something")
    made.say_better("", END)
    assert (made.take(), note.stands) == (["something"], "")


def test_an_unknown_end_has_words_too() -> None:
    told: Any = None
    assert end_words(told) == last_word("no such reason") == "The lease ended."


def test_of_a_budget_that_is_used_up_no_next_gpu_is_promised() -> None:
    made, note = notices()
    made.lease_over("l1", last_word("expired"), [])
    said: EndView = {"reason": "expired", "sentence": "Hours used up.", "note": "", "at": ""}
    made.say_better("l1", said)
    wanted = "Hours used up. Your variables are here; the next %%gpu cell asks for a GPU again."
    assert (made.take(), note.stands) == ([wanted], wanted)


def test_of_a_lease_that_goes_on_with_other_gpus_no_new_one_is_spoken_of() -> None:
    made, note = notices()
    made.lease_over("l1", last_word("reshaped"), [])
    said = "The lease changed its GPUs; your variables are here, and it continues by itself."
    assert (made.take(), note.stands) == ([said], said)
