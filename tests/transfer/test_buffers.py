"""Arrays over the memory of another object: the alias holds on the other side."""

import pytest

MAKE = {
    "bytearray": "buf = bytearray(range(64))\nview = np.frombuffer(buf, dtype='u1')",
    "offset": "buf = bytearray(range(64))\nview = np.frombuffer(buf, dtype='u1', offset=8)[2:40:3]",
    "array": "import array\nbuf = array.array('d', range(8))\nview = np.frombuffer(buf)",
    "memoryview": "buf = bytearray(range(64))\nview = np.asarray(memoryview(buf))",
    "large": "buf = bytearray(3_000_000)\nview = np.frombuffer(buf, dtype='u1')",
    "inside": "box = [bytearray(range(64))]\nbuf = box[0]\nview = np.frombuffer(buf, dtype='u1')",
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_write_through_one_is_seen_through_the_other(pair, kind):
    pair.home("import numpy as np\n" + MAKE[kind])
    pair.gpu("view[1] = 77\nassert 77 in buf[:64]")
    pair.home("assert 77 in buf[:64] and view[1] == 77\nview[2] = 99\nassert 99 in buf[:64]")
    pair.gpu("assert 99 in buf[:64] and view[2] == 99\nbuf[-1] = 5")
    pair.home("assert buf[-1] == 5\nview[3] = 44\nassert 44 in buf[:64]")


def test_memory_that_only_an_array_shows_is_the_array_s_own(pair):
    pair.home("import numpy as np\nbig = np.ndarray(400_000, buffer=bytearray(3_200_000))")
    assert pair.ns["big"].base is not None
    pair.gpu("assert big[0] == 0\nbig[1] = 2")
    pair.home("assert big[1] == 2")
