"""What is tied to its process, and what only looks so: what holds it travels in both cases."""

import re
import xml.etree.ElementTree as ET

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer import stayed
from tests.transfer.kinds import open_pair, play


@pytest.fixture(scope="module")
def pair():
    with open_pair() as made:
        yield made


STAYS = {
    "import hashlib; x = hashlib.sha256(b'a')": "a running hash",
    "import hashlib; x = hashlib.blake2b(b'a')": "a running hash",
    "import zlib; x = zlib.compressobj()": "a running compression",
    "import zlib; x = zlib.decompressobj()": "a running compression",
    "import bz2; x = bz2.BZ2Compressor()": "a running compression",
    "import bz2; x = bz2.BZ2Decompressor()": "a running compression",
    "import lzma; x = lzma.LZMACompressor()": "a running compression",
    "import lzma; x = lzma.LZMADecompressor()": "a running compression",
    "import os; x = os.scandir('/'); list(x)": "a running os.scandir",
    "import os; x = list(os.scandir('/'))[0]": "an entry of os.scandir",
    "import numpy as np; x = np.nditer(np.arange(4))": "a running nditer",
    "import numpy as np; x = np.broadcast(1, [2])": "a running broadcast",
    "from xml.etree import ElementTree as E; x = E.Element('a').iter()": "an iterator over el",
    "from xml.etree import ElementTree as E; x = E.XMLParser()": "a parser of XML",
    "from xml.parsers import expat; x = expat.ParserCreate()": "a parser of XML",
    "import zipfile, io; x = zipfile.ZipFile(io.BytesIO(), 'w')": "a ZipFile",
    "import subprocess; x = subprocess.Popen(['true']); x.wait()": "a process",
    "import multiprocessing as mp; x = mp.Process(target=print)": "a process",
    "import multiprocessing as mp; x = mp.Queue()": "a queue between processes",
    "import multiprocessing as mp; x = mp.SimpleQueue()": "a queue between processes",
    "import multiprocessing as mp; x = mp.Value('i', 3)": "a value shared between processes",
    "import multiprocessing as mp; x = mp.Array('i', 3)": "a value shared between processes",
    "import multiprocessing as mp; x = mp.Lock()": "a lock between processes",
    "import multiprocessing as mp; x = mp.Event()": "an event between processes",
    "import multiprocessing as mp; x = mp.Pipe()[0]": "a connection between processes",
    "from multiprocessing.pool import ThreadPool as P; x = P(1); x.close(); x.join()": "a pool of",
    "import ssl; x = ssl.create_default_context()": "a context of SSL",
    "import selectors; x = selectors.DefaultSelector()": "a selector of open files",
    "import struct; x = struct.iter_unpack('i', bytes(8))": "a running struct.iter_unpack",
    "import cProfile; x = cProfile.Profile()": "a profiler",
    "import pandas as pd, io; x = pd.read_csv(io.StringIO('a\\n1'), chunksize=1)": "a reader of ch",
}


@pytest.mark.parametrize("make", STAYS)
def test_it_stays_and_what_holds_it_travels(pair, make):
    play(
        pair,
        [f"seen = 0\n{make}\nclass Box: pass\nbox = Box(); box.x = x; box.n = 1"],
        beside_gpu=False,
    )
    pair.gpu("box.n += 1")
    with pytest.raises(GPULeaseError, match=f"x cannot travel .*it holds {re.escape(STAYS[make])}"):
        pair.gpu("x")
    pair.home("assert box.x is x and box.n == 2")


TRAVELS = {
    "import numpy as np; a = np.arange(6).reshape(2, 3); x = a.flat; next(x)": (
        "assert x.base is a and x.index == 1 and next(x) == 1; x[3] = 9", "assert a[1, 0] == 9",
    ),
    "import numpy as np; x = np.ndenumerate(np.eye(2)); next(x)": (
        "assert next(x) == ((0, 1), 0)", "assert next(x) == ((1, 0), 0)",
    ),
    "import numpy as np; x = np.finfo('f4'), np.iinfo('i2')": (
        "assert x[0].eps == np.finfo('f4').eps and x[1].max == 32767", "x",
    ),
    "class A:\n    def f(s): return s.n\nclass B(A): f = 1\nb = B(); b.n = 3; x = super(B, b)": (
        "assert x.f() == 3; b.n = 4", "assert x.f() == 4 and x.__self__ is b",
    ),
    "class A: n = 1\nclass B(A): n = 2\nx = super(B), super(B, B)": (
        "assert x[1].n == 1", "assert x[0].__get__(B()).n == 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", TRAVELS)
def test_it_travels(pair, make):
    beside, home = TRAVELS[make]
    play(pair, [f"seen = 0\n{make}"], beside_gpu=False)
    pair.gpu(beside)
    pair.home(home)


def test_a_list_with_empty_places_is_looked_into():
    """A parser of XML has one: to ask for what is in it would end the process."""
    assert stayed.way_to({"x": ET.XMLParser()}, object()) == ""
