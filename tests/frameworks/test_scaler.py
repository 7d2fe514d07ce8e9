"""A GradScaler travels as it is, its tensors with it, and not between scale() and update()."""

import pytest

from gpulease.errors import GPULeaseError

MAKE = """
import torch
w = torch.ones(3, requires_grad=True); opt = torch.optim.SGD([w], lr=.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16., growth_interval=2)
def half():
    scaler.scale((w * w).sum()).backward(); scaler.unscale_(opt)
def step():
    opt.zero_grad(); half(); scaler.step(opt); scaler.update()
step(); scale = scaler._scale; box = [scaler]
"""


def test_its_tensors_are_the_same(pair):
    pair.gpu(MAKE)
    pair.home("assert scaler._scale is scale and scale == 16 and scaler._growth_tracker == 1")
    pair.home("assert scaler._init_scale == 16. and box[0] is scaler\nstep()")
    pair.gpu("assert scaler._scale is scale and scale == 32 and scaler.get_scale() == 32")


def test_in_the_middle_of_a_step_it_stays_by_name(pair):
    pair.gpu(MAKE + "opt.zero_grad(); half()")
    with pytest.raises(GPULeaseError, match=r"scaler .*GradScaler before its update\(\)"):
        pair.home("scaler")
    pair.home("assert w.tolist() == w.grad.div(2).tolist()")
    pair.gpu("scaler.step(opt); scaler.update()")
    pair.home("assert scaler.get_scale() == 32 and not scaler._per_optimizer_states")
