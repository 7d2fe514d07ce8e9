"""Notebooks of torch: each cell may run at home or on the GPU, in any pattern.

A cell writes what it sees into ``seen``, exactly: numbers by ``tolist``, identity by ``is``.
"""

# ruff: noqa: E501 - one cell a line

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
seen = []
X = torch.randn(32, 8); y = (X.sum(1) > 0).long()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16); self.bn = nn.BatchNorm1d(16); self.b = nn.Linear(16, 2)
    def forward(self, x): return self.b(F.relu(self.bn(self.a(x))))
model = Net()
"""
STEP = """
for _ in range(3):
    opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()
seen.append((loss.item(), [p.tolist() for p in model.parameters()], [b.tolist() for b in model.buffers()],
             [p.grad.tolist() for p in model.parameters()], float(torch.rand(1))))
seen.append([p is q for p, q in zip(model.parameters(), opt.param_groups[0]['params'])])
"""

NOTEBOOKS = {
    "training": [HEAD, NET, "opt = torch.optim.Adam(model.parameters(), lr=1e-2)", STEP, STEP, STEP],
    "momentum and a schedule": [
        HEAD + NET, "opt = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)\nsched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)",
        STEP + "sched.step(); seen.append(sched.get_last_lr())", STEP + "sched.step(); seen.append(sched.get_last_lr())",
        "import warnings\nwith warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always'); sched.step()\nseen.append([str(x.message)[:40] for x in w])",
        STEP + "sched.step(); seen.append((sched.get_last_lr(), opt.param_groups[0]['lr']))"],
    "losses kept": [
        HEAD + NET, "opt = torch.optim.AdamW(model.parameters()); losses = []", STEP + "losses.append(loss)", STEP + "losses.append(loss)",
        "seen.append([v.item() for v in losses]); seen.append(losses[-1] is loss)", STEP + "losses.append(loss); total = sum(v.detach() for v in losses)",
        "seen.append((total.item(), loss.requires_grad, loss.is_leaf, loss._is_view(), loss + 1 > loss, losses[-1] is loss))"],
    "views and aliases": [
        HEAD, "t = torch.arange(12.).reshape(3, 4); v = t[1]; w = t.T; d = t.detach()", "v += 1; seen.append((t.tolist(), w.tolist(), d.tolist()))",
        "w[0, 0] = 9; seen.append((t.tolist(), v.data_ptr() == t[1].data_ptr(), d.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()))",
        "d.mul_(2); seen.append((t.tolist(), v.tolist()))", "t = t + 1; v[:] = 0; seen.append((t.tolist(), v.tolist(), w.tolist()))"],
    "numpy shares memory": [
        HEAD + "import numpy as np", "a = np.arange(6.); t = torch.from_numpy(a); n = t.numpy(); part = a[2:4]", "a[0] = 7; t[1] = 8; n[5] = 1; seen.append((a.tolist(), t.tolist(), n.tolist()))",
        "part += 10; seen.append((a.tolist(), t.tolist(), n.tolist(), np.shares_memory(a, n)))", "t.mul_(2); seen.append((a.tolist(), part.tolist()))"],
    "numpy larger than its tensor": [
        HEAD + "import numpy as np", "a = np.arange(10.); t = torch.from_numpy(a[2:6]); u = torch.from_numpy(a[4:8])", "t += 1; seen.append((a.tolist(), u.tolist()))",
        "u *= 2; seen.append((a.tolist(), t.tolist()))", "a[5] = -1; seen.append((t.tolist(), u.tolist()))"],
    "tied weights": [
        HEAD + "model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)); model[1].weight = model[0].weight; ids = torch.arange(5)",
        "opt = torch.optim.SGD(model.parameters(), lr=.1)", "F.cross_entropy(model(ids), ids).backward(); opt.step(); seen.append((model[0].weight.tolist(), model[1].weight is model[0].weight))",
        "opt.zero_grad(); F.cross_entropy(model(ids), ids).backward(); opt.step(); seen.append((model[1].weight.grad.tolist(), len(list(model.parameters()))))",
        "seen.append((model[0].weight.tolist(), model[1].weight is model[0].weight, opt.param_groups[0]['params'][0] is model[0].weight))"],
    "state_dict is alive": [
        HEAD + NET + "opt = torch.optim.Adam(model.parameters())", "state = model.state_dict(); before = {k: v.clone() for k, v in state.items()}", STEP,
        "seen.append([(k, v.tolist(), bool((v == before[k]).all())) for k, v in state.items()])", "model.load_state_dict(before)",
        "seen.append([(k, bool((v == before[k]).all())) for k, v in state.items()])", STEP],
    "hooks": [
        HEAD + NET + "calls = []\ndef hook(m, i, o): calls.append(('f', tuple(o.shape)))\nhandle = model.a.register_forward_hook(hook)\nopt = torch.optim.SGD(model.parameters(), lr=.1)",
        "g = model.b.weight.register_hook(lambda grad: grad * 2)", STEP, "seen.append(calls); h2 = model.bn.register_forward_hook(lambda m, i, o: calls.append('bn'))",
        STEP, "handle.remove(); g.remove(); seen.append(len(calls))", STEP + "seen.append(len(calls))", "h2.remove(); model(X); seen.append((len(calls), len(model.bn._forward_hooks)))"],
    "optimiser's step hooks": [
        HEAD + NET + "n = []\nopt = torch.optim.SGD(model.parameters(), lr=.1)\nh = opt.register_step_post_hook(lambda o, a, k: n.append(o is opt))", STEP, "seen.append(n)", STEP, "h.remove(); seen.append(n)", STEP + "seen.append(n)"],
    "frozen and thawed": [
        HEAD + NET + "opt = torch.optim.SGD(model.parameters(), lr=.1, weight_decay=.1)", "model.a.requires_grad_(False)", STEP.replace("p.grad.tolist()", "p.requires_grad"),
        "seen.append([p._version for p in model.parameters()] and [p.requires_grad for p in model.parameters()]); model.a.requires_grad_(True)", STEP, STEP],
    "gradients accumulate": [
        HEAD + NET + "opt = torch.optim.SGD(model.parameters(), lr=.1)", "F.cross_entropy(model(X), y).backward()", "g = model.a.weight.grad; F.cross_entropy(model(X[:16]), y[:16]).backward(); seen.append(g.tolist())",
        "seen.append((g is model.a.weight.grad, g.tolist())); F.cross_entropy(model(X[16:]), y[16:]).backward()", "seen.append((g is model.a.weight.grad, g.tolist())); opt.step(); opt.zero_grad()",
        "seen.append((model.a.weight.grad, g.tolist(), model.a.weight.tolist()))"],
    "a replaced layer": [
        HEAD + NET + "opt = torch.optim.SGD(model.parameters(), lr=.1)", STEP, "old = model.b; model.b = nn.Linear(16, 2)", "opt.add_param_group({'params': model.b.parameters()})",
        "opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step(); seen.append((loss.item(), old.weight.grad, model.b.weight.tolist(), old.weight is opt.param_groups[0]['params'][4]))",
        "seen.append((len(opt.param_groups), old.weight.tolist(), old.weight is opt.param_groups[0]['params'][4]))"],
    "kinds of tensors": [
        HEAD + "k = dict(bf=torch.randn(3).bfloat16(), c=torch.randn(3, dtype=torch.cfloat), b=torch.tensor([True, False]), e=torch.zeros(0, 3), s=torch.tensor(2.), x=torch.randn(1, 3).expand(4, 3), f8=torch.randn(4).to(torch.float8_e4m3fn), h=torch.randn(2).half(), i=torch.arange(4, dtype=torch.int8))",
        "k['cj'] = k['c'].conj(); k['ng'] = k['c'].conj().imag; k['t'] = torch.randn(2, 3, 4).permute(2, 0, 1); k['o'] = torch.as_strided(torch.arange(6.), (4, 3), (1, 1))",
        "seen.append({n: (v.float().tolist() if not v.is_complex() else str(v.tolist()), str(v.dtype), tuple(v.shape), v.stride(), v.is_conj(), v.is_neg()) for n, v in k.items()})",
        "k['c'] += 1; k['t'][0] = 1; k['o'][1, 1] = 5; k['bf'] *= 2",
        "seen.append({n: (v.float().tolist() if not v.is_complex() else str(v.tolist()), str(v.dtype), v.stride(), v.is_conj(), v.is_neg()) for n, v in k.items()})"],
    "sparse": [
        HEAD + "torch.sparse.check_sparse_tensor_invariants.disable(); s = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3., 4.], (2, 3)); c = torch.eye(3).to_sparse_csr()", "s = s * 2; seen.append((s.to_dense().tolist(), s.is_coalesced(), c.to_dense().tolist()))",
        "s = s.coalesce(); s.values()[0] = 1; seen.append((s.to_dense().tolist(), s.is_coalesced()))", "seen.append((s.to_dense().tolist(), s.is_coalesced(), c.layout is torch.sparse_csr))"],
    "inference mode": [
        HEAD + NET, "with torch.inference_mode(): out = model(X)", "seen.append((out.is_inference(), out.sum().item()))", "with torch.inference_mode(): out += 1", "seen.append((out.is_inference(), out.sum().item(), out.requires_grad))"],
    "a tensor's own attributes": [
        HEAD + "class Tagged(torch.Tensor): pass\nt = torch.ones(3); t.tag = ['a']; u = torch.arange(3.).as_subclass(Tagged); u.note = t", "t.tag.append('b'); u += 1",
        "seen.append((t.tag, u.tolist(), type(u) is Tagged, u.note is t))", "del t.tag; u.note.add_(1)", "seen.append((hasattr(t, 'tag'), t.tolist(), (u * 2).tolist(), type(u * 2) is Tagged))"],
    "recurrent": [
        HEAD + "model = nn.LSTM(8, 4, batch_first=True); opt = torch.optim.Adam(model.parameters()); h = None\nS = torch.randn(4, 6, 8)", "out, h = model(S); out.sum().backward(); opt.step(); h = tuple(v.detach() for v in h)",
        "out, h = model(S, h); seen.append((out.sum().item(), [v.tolist() for v in h])); opt.zero_grad(); h = tuple(v.detach() for v in h)", "out, h = model(S, h); out.mean().backward(); opt.step(); seen.append([p.tolist() for p in model.parameters()]); h = None"],
    "data loaders": [
        HEAD + NET + "from torch.utils.data import DataLoader, TensorDataset\nds = TensorDataset(X, y); dl = DataLoader(ds, batch_size=8, shuffle=True)\nopt = torch.optim.SGD(model.parameters(), lr=.1)",
        "for a, b in dl:\n    opt.zero_grad(); loss = F.cross_entropy(model(a), b); loss.backward(); opt.step()\nseen.append(loss.item())",
        "for a, b in dl:\n    opt.zero_grad(); loss = F.cross_entropy(model(a), b); loss.backward(); opt.step()\nseen.append((loss.item(), ds.tensors[0] is X))", "seen.append([b.tolist() for _, b in dl])"],
    "generators": [
        HEAD + "g = torch.Generator().manual_seed(3)", "seen.append(torch.rand(2, generator=g).tolist())", "seen.append(torch.rand(2, generator=g).tolist()); p = torch.randperm(5, generator=g)", "seen.append((p.tolist(), torch.rand(1, generator=g).item(), g.initial_seed()))"],
    "parametrizations": [
        HEAD + "m = nn.utils.parametrizations.weight_norm(nn.Linear(8, 2)); opt = torch.optim.SGD(m.parameters(), lr=.1)", "loss = F.cross_entropy(m(X), y); loss.backward(); opt.step(); seen.append(m.weight.tolist())",
        "opt.zero_grad(); loss = F.cross_entropy(m(X), y); loss.backward(); opt.step(); seen.append((m.weight.tolist(), type(m).__name__))", "seen.append((loss.item(), [p.tolist() for p in m.parameters()]))"],
    "lazy layers": [
        HEAD + "m = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))", "seen.append(m(X).sum().item())", "seen.append((type(m[0]).__name__, m(X).sum().item()))", "m[0].weight.data.mul_(2); seen.append(m(X).sum().item())"],
    "averaged models": [
        HEAD + NET + "from torch.optim.swa_utils import AveragedModel\nopt = torch.optim.SGD(model.parameters(), lr=.1); ema = AveragedModel(model, avg_fn=lambda a, p, n: .9 * a + .1 * p)", STEP + "ema.update_parameters(model)",
        STEP + "ema.update_parameters(model)", "seen.append(([p.tolist() for p in ema.module.parameters()], ema.n_averaged.item()))"],
    "containers": [
        HEAD + "class M(nn.Module):\n    def __init__(s):\n        super().__init__(); s.ls = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)); s.ps = nn.ParameterDict({'k': nn.Parameter(torch.zeros(8))}); s.register_buffer('n', torch.zeros(()), persistent=False)\n    def forward(s, x):\n        s.n += 1\n        for l in s.ls: x = torch.tanh(l(x) + s.ps['k'])\n        return x\nm = M(); first = m.ls[0]",
        "m(X).sum().backward(); seen.append((m.n.item(), first.weight.grad.sum().item(), m.ls[0] is first))", "m.ls.append(nn.Linear(8, 8)); seen.append(m(X).sum().item())", "seen.append((len(m.ls), m.n.item(), 'n' in m.state_dict(), m.ls[0] is first))"],
    "functions over globals": [
        HEAD + NET + "opt = torch.optim.Adam(model.parameters())\ndef train(n):\n    global last\n    for _ in range(n):\n        opt.zero_grad(); last = F.cross_entropy(model(X), y); last.backward(); opt.step()\n    return last.item()\ndef score():\n    with torch.no_grad(): return (model(X).argmax(1) == y).float().mean().item()",
        "seen.append(train(3))", "seen.append((score(), last.item()))", "model.eval(); seen.append((train(2), score()))", "seen.append((model.training, score(), last.item()))"],
}  # fmt: skip
