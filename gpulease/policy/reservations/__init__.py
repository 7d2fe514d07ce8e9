"""Reservations: N of a class kept for a group in windows of time.

``booking`` says what a site allows, ``feasibility`` whether a reservation fits and what would fit
instead, ``seats`` who sits where in the windows that are open now, ``departures`` who must go for
them, ``reports`` the messages to people.  The nouns stand in ``calendar.reservation``.
"""
