"""Small notebooks of torch on two sides of the engine in this process, in turns."""

# ruff: noqa: E501 - one cell a line

import pickle
import sys
import types

import pytest

from gpulease.transfer.holders import is_kept
from gpulease.transfer.side import Side
from tests.transfer.companion_main import run
from tests.transfer.kinds import plain

pytestmark = pytest.mark.filterwarnings("ignore")  # sparse and typed storages warn
HEAD = "import torch, torch.nn as nn, torch.nn.functional as F, numpy as np\ntorch.manual_seed(0); seen = []\n"
CASES = {
    'autograd function': [
        'class Sq(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx,x): ctx.save_for_backward(x); return x*x\n    @staticmethod\n    def backward(ctx,g): (x,)=ctx.saved_tensors; return 2*x*g\nw=torch.ones(2,requires_grad=True)',
        'Sq.apply(w).sum().backward(); seen.append(w.grad.tolist())',
        'Sq.apply(w).sum().backward(); seen.append(w.grad.tolist())',
    ],
    'resize': [
        't=torch.arange(4.); v=t[:2]; u=t',
        't.resize_(8).fill_(1.)',
        'seen.append((t.tolist(),v.tolist(),u is t)); t.add_(1)',
        'seen.append((t.tolist(),v.tolist()))',
    ],
    'set of tensors': [
        'a=torch.ones(1);b=torch.zeros(1); s={a,b}; d={a:1,b:2}',
        'seen.append((a in s, b in d, d[a]))',
        'a.add_(1); seen.append((a in s, d[b], len(s)))',
        'seen.append(sorted(x.item() for x in s))',
    ],
    'view of a parameter': [
        'w=nn.Parameter(torch.ones(4)); v=w[:2]',
        'seen.append(v.tolist())\nwith torch.no_grad(): w.mul_(3)',
        'seen.append((v.tolist(), v.requires_grad))',
    ],
    'data swapped': [
        'w=nn.Parameter(torch.ones(4)); d=w.data',
        'w.data=torch.zeros(4); seen.append(d.tolist())',
        'd.add_(1); seen.append((w.tolist(),d.tolist()))',
        'seen.append((w.tolist(),d.tolist()))',
    ],
    'half then float': [
        'm=nn.Linear(2,2); p=m.weight',
        'm.half(); seen.append(str(p.dtype))',
        'seen.append((str(m.weight.dtype), p is m.weight)); m.float()',
        'seen.append((str(p.dtype), p is m.weight, p.tolist()))',
    ],
    'two arrays one tensor': [
        'a=np.arange(6.); b=a[2:]; t=torch.from_numpy(b); u=torch.from_numpy(a)',
        't+=1; seen.append((a.tolist(),u.tolist()))',
        'a[5]=9; seen.append((t.tolist(),u.tolist()))',
        'u*=2; seen.append((a.tolist(),b.tolist(),t.tolist()))',
    ],
    'array subclass over tensor': [
        't=torch.arange(4.); m=np.ma.masked_array(t.numpy(),[0,1,0,0]); n=t.numpy()[::2]',
        't+=1; seen.append((m.tolist(),n.tolist()))',
        'n[0]=7; seen.append((t.tolist(),m.tolist()))',
        'seen.append((t.tolist(),m.tolist(),n.tolist()))',
    ],
    'bare storage': [
        't=torch.arange(4.); s=t.untyped_storage(); ts=t.storage()',
        't+=1; seen.append((list(s)[:8], ts.tolist()))',
        's[0]=1; ts[1]=7; seen.append(t.tolist())',
        'seen.append((t.tolist(), ts.tolist(), s.data_ptr()==t.data_ptr()==ts.data_ptr()))',
    ],
    'parts of a nested tensor': [
        'n=torch.nested.nested_tensor([torch.ones(2),torch.zeros(3)]); u=n.unbind()',
        'u[0].add_(1); seen.append([x.tolist() for x in n.unbind()])',
        'seen.append((n.is_nested, n.requires_grad, [x.tolist() for x in u])); u[1].add_(2)',
        'seen.append([x.tolist() for x in n.unbind()])',
    ],
    'gradient of a nested tensor': [
        'n=torch.nested.nested_tensor([torch.ones(2),torch.zeros(3)], requires_grad=True)',
        'torch.nested.to_padded_tensor(n*2, 0).sum().backward(); seen.append(n.is_leaf)',
        'seen.append([x.tolist() for x in n.grad.unbind()])',
    ],
    'sparse values shared': [
        's=torch.sparse_coo_tensor([[0,1]],[1.,2.],(3,)).coalesce(); v=s.values()',
        'v+=1; seen.append(s.to_dense().tolist())',
        'seen.append((s.to_dense().tolist(), v.tolist())); v*=2',
        'seen.append(s.to_dense().tolist())',
    ],
    'retain grad': [
        'w=torch.ones(2,requires_grad=True); h=w*2; h.retain_grad(); l=h.sum()',
        'seen.append(h.tolist())',
        'seen.append(1)',
    ],
    'grad alias': [
        'w=torch.ones(2,requires_grad=True); (w*w).sum().backward(); g=w.grad',
        'g.mul_(2); seen.append(w.grad.tolist())',
        'w.grad=None; seen.append(g.tolist())',
        'w.grad=g; g+=1',
        'seen.append((w.grad is g, w.grad.tolist()))',
    ],
    'module vars': [
        'm=nn.Linear(2,2); sp=vars(m); ps=m._parameters',
        "m.note=[1]; seen.append(('note' in sp, ps is m._parameters))",
        "sp['x']=3; seen.append((m.x, ps['weight'] is m.weight))",
        "del m.note; seen.append(('note' in sp))",
    ],
    'generator holds': [
        'm=nn.Linear(2,2); opt=torch.optim.SGD(m.parameters(),lr=.1)\ndef steps():\n    for i in range(5):\n        opt.zero_grad(); m(torch.ones(1,2)).sum().backward(); opt.step(); yield m.weight.sum().item()\ng=steps()\nseen.append(next(g))',
        'with torch.no_grad(): m.weight.zero_()',
        'seen.append(next(g))',
        "m.bias.data.fill_(5.); opt.param_groups[0]['lr']=1.",
        'seen.append((next(g), m.bias.tolist()))',
    ],
    'partial and closure': [
        'import functools\nw=nn.Parameter(torch.ones(2)); f=functools.partial(torch.mul,w); h=(lambda a: lambda: a.sum().item())(w)',
        'with torch.no_grad(): w.fill_(4.)\nseen.append((f(2).tolist(),h()))',
        'seen.append((f(2).tolist(),h(),f.args[0] is w))',
    ],
    'lists of views': [
        't=torch.zeros(6); parts=list(t.split(2)); m=torch.stack(parts)',
        'parts[1].fill_(3); seen.append((t.tolist(), m.tolist()))',
        't.add_(1); seen.append([p.tolist() for p in parts])',
        'seen.append([p.tolist() for p in parts]+[parts[0]._base is t])',
    ],
    'scheduler': [
        'm=nn.Linear(2,2); opt=torch.optim.Adam(m.parameters()); s=torch.optim.lr_scheduler.ReduceLROnPlateau(opt,patience=0); e=torch.optim.lr_scheduler.StepLR(opt,1)',
        'm(torch.ones(1,2)).sum().backward(); opt.step(); e.step(); seen.append(e.get_last_lr())',
        "opt.step(); e.step(); s.step(1.); s.step(2.); s.step(2.); seen.append((e.get_last_lr(), opt.param_groups[0]['lr'], s.optimizer is opt))",
    ],
    'deepcopy ema': [
        'import copy\nm=nn.Linear(2,2); e=copy.deepcopy(m); best=m.state_dict()',
        "m.weight.data+=1; seen.append((e.weight.tolist(), best['weight'].tolist()))",
        "seen.append((best['weight'].data_ptr()==m.weight.data_ptr(), e.weight.tolist()))",
    ],
    'device objects': [
        "d=torch.device('cpu'); dt=torch.float32; l=torch.strided; z=torch.Size([1]); mm=torch.preserve_format",
        'seen.append((str(d),str(dt),str(l),z,str(mm)))',
        "seen.append((d==torch.device('cpu'), dt is torch.float32, l is torch.strided, mm is torch.preserve_format))",
    ],
    'expand': [
        'b=torch.ones(1,3); x=b.expand(4,3); o=torch.as_strided(torch.arange(6.),(4,3),(1,1))',
        'b.add_(1); seen.append(x.tolist())',
        'seen.append((x.stride(), x.tolist(), o.tolist()))',
    ],
    'uint and complex': [
        'c=torch.ones(2,dtype=torch.cfloat)*1j; k=c.conj(); i=c.imag; r=torch.view_as_real(c)',
        'c+=1; seen.append((str(k.tolist()), i.tolist(), r.tolist()))',
        'i.zero_(); seen.append((str(c.tolist()), k.is_conj()))',
        'seen.append((str(c.tolist()), str(k.tolist())))',
    ],
    'no grad leaf in graph': [
        'w=torch.ones(2,requires_grad=True); l=(w*3).sum(); w2=w.detach()',
        'w.requires_grad_(False); seen.append(l.item())',
        'seen.append((w.requires_grad, l.requires_grad))',
        'w.requires_grad_(True); seen.append(w2.tolist())',
    ],
    'named tuple and seq': [
        'p=nn.utils.rnn.pack_sequence([torch.ones(2),torch.ones(1)]); n=torch.max(torch.eye(2),0)',
        'seen.append((p.data.tolist(), type(n).__name__, n.values.tolist()))',
        'seen.append((p.batch_sizes.tolist(), n.indices.tolist(), type(p).__name__))',
    ],
    'many faces graph': [
        'w=torch.ones(3,requires_grad=True); b=torch.zeros(3); v=b[1:]; y=(w*b).sum()',
        "v+=1\ntry: y.backward(); seen.append(w.grad.tolist())\nexcept RuntimeError as e: seen.append('raised')",
    ],
}  # fmt: skip
#: What is refused by name, with words of the reason.
REFUSED = {
    "buf": ("buf = bytearray(8); t = torch.frombuffer(buf, dtype=torch.uint8)", "a bytearray share"),
    "sr": ("import pandas as pd; t = torch.arange(4.); sr = pd.Series(t.numpy(), copy=False)", "a torch.Tensor"),
    "node": ("w = torch.ones(2, requires_grad=True); node = (w * 2).grad_fn", "MulBackward0"),
}  # fmt: skip


@pytest.fixture
def sides(monkeypatch):
    made = []
    for label in "ha":
        main = types.ModuleType("__main__")
        hidden = {*vars(main), "__builtins__"}
        made.append((main, Side(label, vars(main), hidden=hidden)))

    def turn(start, end):
        monkeypatch.setitem(sys.modules, "__main__", made[start][0])
        parcel = made[start][1].pack()
        monkeypatch.setitem(sys.modules, "__main__", made[end][0])
        side = made[end][1]
        side.commit(side.stage(pickle.loads(pickle.dumps(parcel, protocol=5))))
        made[start][1].acknowledge(parcel)
        return parcel, side.changed()

    monkeypatch.setitem(sys.modules, "__main__", made[0][0])
    return made, turn


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_in_one_process_and_still_where_nothing_changed(name, sides):
    cells = [HEAD + CASES[name][0], *CASES[name][1:]]
    expected = plain(cells)
    made, turn = sides
    at = 0
    run(vars(made[at][0]), cells[0])
    for source in cells[1:]:
        parcel, changed = turn(at, 1 - at)
        at = 1 - at
        assert (parcel.away, list(filter(is_kept, parcel.pins)), changed) == ({}, [], [])
        run(vars(made[at][0]), source)
    assert vars(made[at][0])["seen"] == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_travel_stays_by_name(name, sides):
    source, words = REFUSED[name]
    made, turn = sides
    run(vars(made[0][0]), HEAD + source)
    parcel, _ = turn(0, 1)
    assert words in parcel.away[name].reason


def test_a_hook_on_a_value_whose_graph_is_away_stays_by_name(sides):
    made, turn = sides
    run(vars(made[0][0]), HEAD + "w = torch.ones(2, requires_grad=True); h = w * 2")
    turn(0, 1)
    run(vars(made[1][0]), "h.register_hook(lambda grad: None)")
    parcel, _ = turn(1, 0)
    assert "a hook on a value" in parcel.away["h"].reason
