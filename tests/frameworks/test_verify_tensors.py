from __future__ import annotations

import warnings

import pytest

from gpulease.verify.picture import picture

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks


def kinds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ones = torch.ones(2, 2)
        return {
            "float8": torch.ones(2).to(torch.float8_e4m3fn),
            "quantised": torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8),
            "by channel": torch.quantize_per_channel(
                ones, torch.ones(2), torch.zeros(2), 0, torch.quint8
            ),
            "jagged": torch.nested.nested_tensor(
                [torch.ones(2), torch.ones(3)], layout=torch.jagged
            ),
            "lazy": torch.nn.LazyLinear(3).weight,
            "meta": torch.empty(2, device="meta"),
            "compressed": torch.eye(2).to_sparse_csr(),
            "unsigned": torch.ones(2, dtype=torch.uint16),
        }


@pytest.mark.parametrize("kind", list(kinds()))
def test_a_tensor_of_any_kind_has_a_picture(kind):
    value = kinds()[kind]
    assert picture({"value": value}, ["value"]) == picture({"value": kinds()[kind]}, ["value"])


@pytest.mark.parametrize("kind", ["float8", "quantised", "jagged", "compressed"])
def test_other_numbers_have_another_picture(kind):
    value = kinds()[kind]
    with torch.no_grad():
        if kind == "float8":
            other = (value.float() * 0).to(value.dtype)
        elif kind == "quantised":
            other = torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.qint8)
        else:
            other = value * 0
    assert picture({"value": value}, ["value"]) != picture({"value": other}, ["value"])
