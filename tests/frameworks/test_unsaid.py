from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks


def test_what_torch_warns_of_in_our_own_calls_is_under_no_cell():
    from gpulease.transfer.torch import loading

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loading.quantized(b"\1\1", torch.int8, (2,), 0.1, 0)
        crow, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
        parts = [
            (each.untyped_storage(), (each.dtype, 0, tuple(each.shape), each.stride()))
            for each in (crow, columns, torch.ones(2))
        ]
        loading.sparse(torch.sparse_csr, parts, (2, 2), None, False)
        warnings.warn("of the notebook's own", UserWarning, stacklevel=1)
    assert [str(each.message) for each in seen] == ["of the notebook's own"]
