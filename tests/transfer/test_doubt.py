"""What a GPU cell may have changed is in doubt while its answer is late, and loses nothing."""

import pytest

MAKE = "a = []\nd = (lambda v: (lambda: v.append(1) or v))(a)"


@pytest.fixture
def late_pair(new_pair):
    """Home waits for no answer, and sends only what is asked for."""
    made = new_pair(settings={"reply_wait": 0.0, "small_bytes": -1, "eager_bytes": -1})
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
