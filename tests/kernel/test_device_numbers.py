"""A library that reads numbers where devices have identifiers is told of the policy's option."""

import pytest

from gpulease.kernel.gate import numbers_wanted

UUID = "GPU-3f2a9c1e-1111-2222-3333-444444444444"


@pytest.mark.parametrize("text", [UUID, f" {UUID}", f"{UUID} "])
def test_the_error_of_a_library_that_counts_names_the_option(text):
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int(text)
    assert "`devices_by: index`" in numbers_wanted(str(caught.value))


def test_a_mig_device_has_no_number():
    assert "whole GPU" in numbers_wanted("invalid literal for int() with base 10: 'MIG-1a2b'")


@pytest.mark.parametrize(
    "text", ["invalid literal for int() with base 10: 'abc'", f"no kernel image on {UUID}"]
)
def test_another_error_is_left_alone(text):
    assert numbers_wanted(text) == ""
