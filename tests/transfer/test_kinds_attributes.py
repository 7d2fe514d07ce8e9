"""Dictionaries of attributes that something else holds as well: ``cfg = vars(args)``."""

# ruff: noqa: E501 - one notebook a line

from tests.transfer.kinds import Kind, each_group, same_as_plain

KINDS = {
    "vars of a namespace": Kind("import argparse\nx = argparse.Namespace(a=1, l=[1])\ncfg = vars(x)\ncfg['n'] = x.l",
                                "cfg['k'] = x.a; x.a += 1; cfg['l'].append(x.a)", "(cfg is vars(x), x, sorted(cfg), cfg['n'] is x.l)"),
    "vars of an instance that holds itself": Kind("class C: pass\nx = C(); x.me = x; x.n = 0\ncfg = x.__dict__\nl = [cfg]",
                                                  "x.n += 1; cfg['m'] = x.me.n", "(x.me is x, cfg is vars(x), l[0] is cfg, x.n, cfg['n'])"),
    "vars of a data class": Kind("import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n    d: dict = dataclasses.field(default_factory=dict)\nx = C(); x.d['v'] = vars(x)",
                                 "x.d['v']['a'] += 1", "(x.a, x.d['v'] is vars(x))"),
    "vars with slots": Kind("class C:\n    __slots__ = ('s', '__dict__', '__weakref__')\nx = C(); x.s = [1]; x.a = x.s\ncfg = vars(x)",
                            "cfg['b'] = 1; x.s.append(x.b)", "(cfg is vars(x), x.s is x.a, x.s, cfg)"),
    "vars of a simple namespace": Kind("import types, collections\nx = types.SimpleNamespace(n=0); x.me = x\ncfg = vars(x)\nch = collections.ChainMap({}, cfg)",
                                       "x.n += 1; cfg['k'] = x.n", "(cfg is vars(x), x.me is x, x.n, ch['k'] if 'k' in ch else 0, ch.maps[1] is cfg)"),
    "a module that a cell made": Kind(
        "import types\nx = types.ModuleType('mine'); exec(\"\"\"\nl = [0]\nk = 0\ndef grow():\n    global k\n    k += 1\n    l.append(k)\nclass C: pass\"\"\", vars(x))\nup, cfg, made, l = x.grow, vars(x), x.C(), x.l",
        "up(); x.me = x", "(x.k, x.l is l, l, cfg is vars(x), up.__globals__ is cfg, up is x.grow, type(made) is x.C, cfg.get('me', x) is x)"),
    "a function whose module is in no variable": Kind(
        "import types\nm = types.ModuleType('json'); exec(\"\"\"\nk = 0\ndef grow():\n    global k\n    k += 1\"\"\", vars(m))\nx = m.grow; z = [m.grow]; del m",
        "x()", "(x.__globals__['k'], z[0] is x)"),
    "what a frame has noted of itself": Kind("import pandas as pd\nx = pd.DataFrame({'a': [1]}); cfg = x.attrs; s = x.a; own = s.attrs",
                                             "x.attrs['k'] = cfg; cfg['n'] = x; own['s'] = s", "(cfg is x.attrs, sorted(cfg), cfg.get('n', x) is x, own is s.attrs, own.get('s', s) is s)"),
    "what a cell has noted on a frame": Kind("import pandas as pd, numpy as np\nx = pd.DataFrame({'a': [1, 2]}); s = x.a.copy(); i = x.columns; v = x.a.to_numpy(); l = [v]; x.title = 'ages'; s.n = 0; i.of = l; j = pd.Index(v); j.me = j",
                                             "x.title += '!'; s.n += 1; l.append(s.n); s.l = l; j.k = s.n", "(x.title, s.n, i.of is l, i is x.columns, getattr(s, 'l', l) is l, j.me is j, getattr(j, 'k', 0), np.shares_memory(l[0], x.a.to_numpy()))"),
    "names that no cell can write": Kind("x = [1]\nglobals()['Box[int]'] = x; globals()['Figure[a]'] = 3", "globals()['Box[int]'].append(2); globals()['Figure[a]'] += 1",
                                         "(globals()['Box[int]'] is x, x, globals()['Figure[a]'])", alone=True),
    "a dictionary that is its own attributes": Kind(
        "class AD(dict):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **k)\n        self.__dict__ = self\nx = AD(n=1, l=[2]); x.me = x",
        "x.n += 1; x['k'] = x.l; x.l.append(x.n)", "(vars(x) is x, x.me is x, x.n, x['n'], x.get('k') is x.l or 'k' not in x, x.l)"),
    "attributes shared by all": Kind("class C:\n    s = {'n': 0}\n    def __init__(self): self.__dict__ = self.s\nx, y = C(), C()",
                                     "x.n += 1; y.k = C.s['n']", "(x.n, y.n, vars(x) is vars(y) is C.s, sorted(C.s))"),
    "attributes of another": Kind("class C: pass\nx, y = C(), C()\nx.a = [1]\ny.__dict__ = x.__dict__", "y.b = x.a; x.a.append(1)", "(vars(x) is vars(y), y.a, hasattr(x, 'b'))"),
    "attributes no longer shared": Kind("class C: pass\nx = C(); x.a = 1\ncfg = vars(x)", "cfg = dict(cfg); x.a += 1; cfg['a'] = 0", "(x.a, cfg['a'] in (0, x.a))", same=False),
    "attributes that were cleared": Kind("class C: pass\nx = C(); x.a = 1\ncfg = vars(x)", "cfg.clear() if hasattr(x, 'a') else setattr(x, 'b', 2)", "(cfg is vars(x), cfg)"),
    "a view of attributes": Kind("import types\nclass C: pass\nx = C(); x.n = 0\nmp = types.MappingProxyType(vars(x))\nd = {'k': [1]}\nm2 = types.MappingProxyType(d)",
                                 "x.n += 1; d['k'].append(x.n); d['z'] = m2", "(mp['n'], m2['k'] is d['k'], m2.get('z', m2) is m2)"),
    "a view of a class": Kind("class C:\n    n = 0\n    l = [1]\nx = C(); mp = vars(C); mine = mp['__dict__']",
                              "C.n += 1; C.l.append(C.n); setattr(C, f'm{C.n}', 2)", "(sorted(mp), mp['n'], mp['l'] is C.l, type(mine).__name__, mine.__get__(x) is vars(x))"),
}  # fmt: skip


@each_group(KINDS)
def test_it_is_what_a_plain_kernel_has(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)
