"""Parameters and arrays as they are typed."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.runs.submission import read_array, read_parameters


def test_a_value_is_what_it_reads_as():
    given = ["n=3", "lr=1e-3", "name=adam", "flag=True", "none=None", "empty=", "x=a=b", "y=nan"]
    assert read_parameters(given) == {
        "n": 3, "lr": 0.001, "name": "adam", "flag": True, "none": None, "empty": "", "x": "a=b",
        "y": "nan",
    }  # fmt: skip


@pytest.mark.parametrize("pair", ["n", "=3", "a b=1", "for=1", "1a=2", "x.y=1"])
def test_what_is_no_parameter_is_refused(pair):
    with pytest.raises(GPULeaseError, match="is no"):
        read_parameters([pair])


def test_an_array_is_a_list_of_numbers():
    assert read_array("1-4") == (1, 2, 3, 4)
    assert read_array("7, 1-2,2") == (1, 2, 7)


@pytest.mark.parametrize("text", ["", "4-1", "a", "1-", "-3", "1-1000", "0-150,200-300", "1.5"])
def test_what_is_none_is_refused(text):
    with pytest.raises(GPULeaseError) as caught:
        read_array(text)
    assert caught.value.reason == "bad_array"
