"""Each kind of builtin and standard library value, made on one side and changed on the other."""

# ruff: noqa: E501 - one notebook a line

from tests.transfer.kinds import Kind, each_group, same_as_plain

KINDS = {
    "int": Kind("x = 41", "x += 1", same=False),
    "huge int": Kind("x = 7 ** 20000", "x += 1", "hash(x)", same=False),
    "bool and None": Kind("x = (True, None, ..., NotImplemented)", same=False),
    "float": Kind("x = 0.1", "x *= 3", same=False),
    "nan is itself": Kind(
        "x = float('nan')", "box['other'] = [x, float('nan')]",
        "(x is y, x in box['in'], x in [float('nan')], len(set([x, y])))"),
    "a parser of arguments": Kind(
        "import argparse\nx = argparse.ArgumentParser(); x.add_argument('--n', type=int, default=1); sub = x.add_subparsers(dest='sub'); sub.add_parser('go').add_argument('--hid', help=argparse.SUPPRESS, default=argparse.SUPPRESS)",
        "x.set_defaults(n=x.parse_args([]).n + 1)",
        "(x.parse_args(['go']), x.parse_args(['--n', '9', 'go', '--hid', 'h']), x.format_help().count('SUPPRESS'))"),
    "math.nan": Kind("import math\nx = math.nan", "pass", "(x is math.nan, x in [math.nan])"),
    "nan as a key": Kind(
        "k = float('nan')\nx = {k: 1}", "x[k] += 1", "(len(x), x[k], k is next(iter(x)))"),
    "infinite and negative zero": Kind("x = [float('inf'), -0.0, 1e-320]", "x.append(-0.0)"),
    "complex": Kind("x = 1 + 2j", "x *= 1j", same=False),
    "str": Kind("x = 'é\\u2028\\U0001f600\\x00'", "x += 'ß'", same=False),
    "lone surrogate": Kind("x = '\\ud800'", "x += '\\udfff'", "x.encode('utf-8', 'surrogatepass')",
                           same=False),
    "bytes": Kind("x = bytes(range(256))", "x += b'!'", same=False),
    "bytearray": Kind("x = bytearray(b'abc')", "x += b'd'"),
    "large bytearray": Kind("x = bytearray(200_000)", "x[7] += 1", "(sum(x), len(x))"),
    "range and slice": Kind("x = [range(2, 9, 3), slice(1, None, 2)]", "x.append(range(3))"),
    "tuple of lists": Kind("x = ([1], [2])", "x[0].append(3)", "(x, y[0] is x[0])", same=False),
    "list": Kind("x = [1, [2]]", "x[1].append(3); x.append(4); x.insert(0, x.pop(0))"),
    "list holding itself": Kind("x = [1]; x.append(x)", "x.append(2)",
                                "(len(x), x[1] is x or x[0] is x)"),
    "dict order": Kind("x = {'b': 1, 'a': 2}", "x['b'] = x.pop('b'); x[len(x)] = 0", "list(x.items())"),
    "dict holding itself": Kind("x = {}; x['me'] = x", "x[len(x)] = 1", "(len(x), x['me'] is x)"),
    "set": Kind("x = {1, 'a', (2, 3)}", "x.add(len(x)); x.discard('a')", "sorted(map(str, x))"),
    "frozenset": Kind("x = frozenset('ab')", "x |= {str(len(x))}", "sorted(x)", same=False),
    "frozenset as key": Kind("x = {frozenset({1}): [1]}", "x[frozenset({1})].append(2)"),
    "tuple as key with instance": Kind(
        "class K: pass\nk = K()\nx = {(k, 1): 0}", "x[(k, 1)] += 1", "(len(x), x[(k, 1)])"),
    "instance as key": Kind(
        "class K: pass\nk = K()\nx = {k: 0}", "x[k] += 1", "(len(x), x[k], next(iter(x)) is k)"),
    "key with own hash": Kind(
        "class K:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return hash(self.n)\n"
        "    def __eq__(self, o): return self.n == o.n\nx = {K(1): [0]}",
        "x[K(1)].append(len(x)); x[K(len(x) + 1)] = [5]", "sorted((k.n, v) for k, v in x.items())"),
    "set of instances": Kind(
        "class K: pass\nk = K()\nx = {k}", "x.add(K())", "(len(x), k in x)"),
    "object sentinel": Kind("x = object()\nd = {'k': x}", "d['l'] = x",
                            "(d['k'] is x, all(v is x for v in d.values()))"),
    "sentinel as default": Kind(
        "MISSING = object()\ndef x(v=MISSING): return v is MISSING", "x.n = 1", "(x(), x(1))"),
    "empties": Kind("x = [[], {}, set(), (), '', b'', bytearray(), frozenset()]",
                    "x[0].append(x[1])", "str(x)"),
    "deep nesting": Kind(
        "x = []\nfor _ in range(300): x = [x]", "x.append(1)", "len(repr(x))"),
    "dict view": Kind("d = {1: 2}\nx = d.keys()", "d[len(d) + 5] = 1", "list(x)"),
    "deque": Kind("from collections import deque\nx = deque([1, 2, 3], maxlen=3)", "x.append(len(x)); x.rotate()"),
    "defaultdict": Kind("from collections import defaultdict\nx = defaultdict(list)", "x['k'].append(1); x[len(x)]"),
    "defaultdict of lambda": Kind(
        "from collections import defaultdict\nx = defaultdict(lambda: [0])", "x['k'].append(1)",
        "(dict(x), len(x))"),
    "tree of defaultdicts": Kind(
        "from collections import defaultdict\ndef tree(): return defaultdict(tree)\nx = tree()",
        "x['a']['b'][len(x['a']['b'])] = 1", "str(dict(x['a']['b']))"),
    "Counter": Kind("from collections import Counter\nx = Counter('abca')", "x.update('a')", "x.most_common()"),
    "OrderedDict": Kind("from collections import OrderedDict\nx = OrderedDict(a=1, b=2)", "x.move_to_end('a'); x[len(x)] = 1"),
    "ChainMap": Kind("from collections import ChainMap\ng = {'a': 1}\nx = ChainMap({}, g)", "x['b'] = len(x); g['c'] = 3",
                     "(sorted(x.items()), x.maps[1] is g)"),
    "UserDict": Kind("from collections import UserDict\nclass D(UserDict): pass\nx = D(a=1)", "x['n'] = len(x)", "sorted(map(str, x.items()))"),
    "namedtuple": Kind("from collections import namedtuple\nP = namedtuple('P', 'a b')\nx = P(1, [2])",
                       "x.b.append(3)", "(x, type(x) is P, x._asdict())", same=False),
    "typing NamedTuple": Kind("from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\n    b: list = []\n"
                              "    def s(self): return self.a\nx = P(1)", "x.b.append(3)", "(x, x.s(), P(2))", same=False),
    "MappingProxyType": Kind("import types\nd = {'a': 1}\nx = [types.SimpleNamespace(a=[1])]", "x[0].a.append(2); x[0].b = 1"),
    "array.array": Kind("import array\nx = array.array('d', [1, 2])", "x.append(3)"),
    "heap and bisect": Kind("import heapq\nx = [3, 1, 2]; heapq.heapify(x)", "heapq.heappush(x, 0)"),
    "datetime": Kind("import datetime as dt\nx = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)",
                     "x += dt.timedelta(days=1)", same=False),
    "zoneinfo": Kind("import zoneinfo, datetime\nx = datetime.datetime(2024, 7, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))",
                     "x = x.replace(fold=1)", "(repr(x), x.fold)", same=False),
    "Decimal and Fraction": Kind("from decimal import Decimal\nfrom fractions import Fraction\n"
                                 "x = [Decimal('1.10'), Fraction(1, 3), Decimal('NaN')]", "x[0] += 1; x[1] *= 2"),
    "pathlib": Kind("from pathlib import Path\nx = Path('/a') / 'b'", "x = x / 'c'", same=False),
    "re": Kind("import re\nx = re.compile(r'(a)(?P<n>b)', re.I)", "m = bool(x.match('AB'))", "(x.pattern, x.flags)", same=False),
    "uuid": Kind("import uuid\nx = uuid.UUID(int=5)", same=False),
    "ipaddress": Kind("import ipaddress\nx = ipaddress.ip_network('10.0.0.0/8')", same=False),
    "exception": Kind(
        "try:\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('v', [1]) from e\n"
        "except ValueError as e: x = e",
        "x.args[1].append(2); x.add_note('n')",
        "(repr(x), repr(x.__cause__), repr(x.__context__), x.__notes__ if hasattr(x, '__notes__') else 0)"),
    "exception whose constructor differs": Kind(
        "class E(Exception):\n    def __init__(self, code, text): super().__init__(text); self.code = code\n"
        "x = E(5, 't'); x.more = []", "x.more.append(x.code); x.code += 1; x.args += (1,)",
        "(repr(x), x.code, x.more, isinstance(x, E), type(x) is E)"),
    "exceptions with state of their own": Kind(
        "class O(OSError): n = 1\n"
        "class S(StopIteration): pass\nx = [O(2, 'text'), S(3), KeyError('k')]", "x[0].n += 1",
        "(x[0].errno, x[0].n, x[0].strerror, x[1].value, repr(x[2]))"),
    "ExceptionGroup": Kind("x = ExceptionGroup('g', [ValueError(1), TypeError(2)])", "pass", "repr(x)"),
    "traceback kept": Kind(
        "import sys\ntry: {}['q']\nexcept KeyError as e: x = e", "pass", "repr(x)"),
    "list iterator": Kind("x = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])", "next(x)", "x.__length_hint__()"),
    "map, zip, enumerate": Kind(
        "def d(v): return 2 * v\nx = [map(d, [1, 2, 3, 4]), enumerate('abcdef'), zip([1, 2, 3, 4], 'abcd')]",
        "[next(i) for i in x]", "len(x)"),
    "two names on one iterator": Kind(
        "src = [1, 2, 3, 4, 5, 6, 7, 8]\nx = iter(src)", "got = (next(x), next(y))", "x.__length_hint__()"),
    "StringIO and BytesIO": Kind(
        "import io\nx = [io.StringIO('ab'), io.BytesIO(b'cd')]", "x[0].write('zz'); x[1].seek(0, 2); x[1].write(b'!')",
        "(x[0].getvalue(), x[0].tell(), x[1].getvalue(), x[1].tell())"),
    "random.Random": Kind("import random\nx = random.Random(4)", "r = x.random()", "x.getstate()[1][-1]"),
    "weakref": Kind("import weakref\nclass C: pass\nx = C(); w = weakref.ref(x)", "x.n = getattr(x, 'n', 0) + 1",
                    "x.n if hasattr(x, 'n') else 0"),
    "logger": Kind("import logging\nx = logging.getLogger('kinds.one')", "x.debug('m')", "x.name"),
    "object with a logger": Kind(
        "import logging\nclass C: pass\nx = C(); x.log = logging.getLogger('kinds.two'); x.n = 0",
        "x.n += 1", "(x.n, x.log is logging.getLogger('kinds.two'))"),
    "module alias": Kind("import collections.abc as x\nimport os.path", "pass", "(x.__name__, os.path.join('a', 'b'))"),
    "builtin function": Kind("x = [len, max, print, str.upper, [].append.__class__]", "pass", "(x[0]([1]), x[3]('a'))"),
    "builtin types": Kind("x = [int, dict, type, object, list[int], dict[str, int] | None]", "pass"),
    "operator": Kind("import operator\nx = [operator.itemgetter(1), operator.attrgetter('a'), operator.methodcaller('up')]",
                     "pass", "x[0]([1, 2])"),
    "itertools.cycle of shared list": Kind("x = {'a': [1]}; x['b'] = x['a']", "x['a'].append(1)", "(x, x['a'] is x['b'])"),
    "threading.Event free": Kind("import queue\nx = [1]", "x.append(queue.Empty.__name__)"),
    "hashlib result": Kind("import hashlib\nx = hashlib.sha256(b'a').hexdigest()", "x = x[::-1]", same=False),
    "struct time": Kind("import time\nx = time.gmtime(0)", "pass", "tuple(x)", same=False),
    "union of many": Kind(
        "import datetime, decimal\na = [1]\nx = {'l': a, 't': (a, {'k': a}), 's': {1}, 'd': decimal.Decimal(1)}",
        "a.append(2)", "(x, x['l'] is a, x['t'][0] is a, x['t'][1]['k'] is a)"),
    "many small": Kind("x = [{'i': i} for i in range(3000)]", "x[5]['i'] += 1; x.append({'i': 0})", "(len(x), x[5], x[0] is not x[1])"),
    "sub list shared": Kind("s = [0]\nx = [s] * 3", "x[0].append(1)", "(x, x[0] is x[2], x[0] is s)"),
    "list subclass": Kind("class L(list):\n    def __init__(self, *a): super().__init__(*a); self.t = 0\nx = L([1])",
                          "x.append(2); x.t += 1", "(list(x), x.t, type(x) is L)"),
    "dict subclass": Kind("class D(dict):\n    def __missing__(self, k): return k\n    def __setitem__(self, k, v): super().__setitem__(k, v + 1)\n"
                          "x = D(); x['a'] = 1", "x['a'] = x['a']", "(dict(x), x['q'])"),
    "int subclass": Kind("class I(int): pass\nx = I(5); x.t = [1]", "x.t.append(2)", "(x + 1, x.t, type(x) is I)"),
    "str subclass": Kind("class S(str): pass\nx = S('a'); x.t = [1]", "x.t.append(2)", "(x + 'b', x.t, type(x) is S)"),
    "tuple subclass": Kind("class T(tuple): pass\nx = T([1, [2]]); x.t = 1", "x[1].append(3); x.t += 1", "(tuple(x), x.t)"),
    "set subclass": Kind("class S(set): pass\nx = S({1}); x.t = 1", "x.add(len(x) + 1); x.t += 1", "(sorted(x), x.t)"),
    "property of a cache": Kind(
        "import functools\nclass C:\n    n = 0\n    @functools.cached_property\n    def v(self): C.n += 1; return [C.n]\nx = C()",
        "x.v.append(1)", "(C.n, x.v, x.v is x.v)"),
}  # fmt: skip


@each_group(KINDS)
def test_a_kind_made_at_home_and_away(group, eager, lazy):
    same_as_plain(KINDS, group, eager, lazy)
