"""Data frames of a notebook's own class: the class is needed as any instance's is."""


def test_a_frame_of_an_own_class_travels_both_ways(pair):
    pair.home(
        "import pandas as pd\n"
        "class Noted(pd.DataFrame):\n"
        "    _metadata = ['note']\n"
        "    @property\n"
        "    def _constructor(self): return Noted\n"
        "x = Noted({'q': [1, 2]}); x.note = 'hey'; held = [x]"
    )
    pair.gpu("x['r'] = 3; assert type(held[0][['q']]) is Noted")
    pair.home("assert held[0] is x and x.note == 'hey' and type(x) is Noted and x.r.sum() == 6")


def test_a_weak_dictionary_of_an_own_class_travels_both_ways(pair):
    pair.home(
        "import weakref\n"
        "class Seen(weakref.WeakValueDictionary):\n    def count(self): return len(self)\n"
        "class C: pass\nc = C(); x = Seen(k=c)"
    )
    pair.gpu("assert x['k'] is c and x.count() == 1; d = C(); x['d'] = d")
    pair.home("assert x['d'] is d and x.count() == 2 and type(x) is Seen")
