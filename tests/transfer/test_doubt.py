"""What a GPU cell may have changed is in doubt while its answer is late, and loses nothing."""

import pytest

MAKE = "a = []\nd = (lambda v: (lambda: v.append(1) or v))(a)"


@pytest.fixture
def late_pair(new_pair):
    """Home waits for no answer, and sends only what is asked for."""
    made = new_pair(settings={"small_bytes": -1})
    made.attach()
    return made


def test_a_name_that_a_cell_bound_anew_is_its_own(late_pair):
    late_pair.home("b = 'old'")
    late_pair.gpu("def b(): return 'new'")
    late_pair.gpu("d = b()")  # not the string from home
    late_pair.home("assert b() == d == 'new'")


def test_a_name_that_a_cell_might_have_bound_is_here_again(late_pair):
    late_pair.home("b = 'old'")
    late_pair.gpu("if len('') > 0: b = 1")
    late_pair.home("assert b == 'old'")
    late_pair.gpu("if len('') > 0: b = 1")
    late_pair.gpu("c = b")
    late_pair.home("assert b == c == 'old'")


@pytest.mark.parametrize("where", ["home", "gpu"])
def test_a_closure_that_goes_takes_nothing_it_shared_into_conflict(pair, where):
    pair.gpu("a = []")
    getattr(pair, where)(MAKE)
    pair.gpu("d = 5")
    pair.home("assert a == [] and d == 5")
    assert pair.side.explain("a") is None


def test_what_came_before_the_closure_that_shares_it_is_no_conflict(late_pair):
    late_pair.home("c = [1]")
    late_pair.gpu("a = (lambda v: (lambda: v.append(2) or v))(c)")
    late_pair.home("c")
    late_pair.home("assert a() is c == [1, 2]")
    assert late_pair.side.explain("c") is None


@pytest.fixture
def half_pair(new_pair):
    """Little things travel at once, a closure stays until it is needed."""
    made = new_pair(settings={"small_bytes": 120})
    made.attach()
    return made


#: A closure over ``a`` that is too big to travel at once; ``a`` is not.
BIG = "a = {'k': 1}\nd = (lambda v, big: (lambda: (v, len(big))))(a, bytes(4000))"


@pytest.mark.parametrize("home", ["pass", "a['k'] = 2", "a['k'] = 2; a['m'] = 3"])
def test_what_a_name_shares_with_a_closure_that_stayed_is_kept(half_pair, home):
    half_pair.gpu(BIG)
    assert "d" in half_pair.side.away_names()
    for _ in range(3):
        half_pair.home(home)
        half_pair.gpu("seen = a['k']")
    half_pair.home("assert d()[0] is a, (d()[0], a)")
    assert half_pair.side.explain("a") is None


def test_a_closure_that_comes_after_home_cells_is_no_conflict(half_pair):
    half_pair.gpu(BIG)
    half_pair.home("a['k'] = 2")
    half_pair.home("a['k'] += 1")
    half_pair.home("assert d()[0] is a and a == {'k': 3}")
