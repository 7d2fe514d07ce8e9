"""What is said otherwise of a lease that has a part of a card: nobody counts its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpulease.policy.explanation.reasons import Words
from gpulease.policy.states import LeaseState

_GOES_ON: Final = (
    "A running cell is interrupted, your variables are saved to the notebook, and the next "
    "GPU cell goes on with the rest of the card."
)

#: Of a lease that becomes a smaller part of its card.
_SMALLER: Final[Words] = {
    "preempted_in_part": (
        "Somebody with a prior claim needs a part of this GPU; you go on with {share_kept}% of "
        "the card.",
        _GOES_ON,
    ),
    "reserved_in_part": (
        "A part of this GPU is reserved for a lab; you go on with {share_kept}% of the card.",
        _GOES_ON,
    ),
}

OF_PARTS: Final[Mapping[LeaseState, Words]] = {
    LeaseState.WARNED: _SMALLER,
    LeaseState.DRAINING: _SMALLER,
    LeaseState.QUEUED: {
        "reshaped": (
            "Your variables are in your notebook; {share}% of a card is kept for you.",
            "It goes on by itself in a moment.",
        ),
    },
}
