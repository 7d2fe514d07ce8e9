"""Objects that may show an array's memory, in a notebook that has no numpy."""

import subprocess
import sys

import pytest

WALK = """
import sys
{make}
from gpulease.transfer.side import Side
parcel = Side("h", {{"x": x, "__name__": "__main__"}}).pack()
print([each.names for each in parcel.components], parcel.away, "numpy" in sys.modules)
"""


@pytest.mark.parametrize(
    "make",
    [
        "from PIL import Image\nx = Image.new('RGB', (4, 4), 'red')",
        "from PIL import Image, ImageDraw\nx = Image.new('L', (4, 4)); x = [x, ImageDraw.Draw(x)]",
    ],
)
def test_they_travel(make):
    """In a process of its own: what is imported here cannot be taken back."""
    done = subprocess.run(
        [sys.executable, "-c", WALK.format(make=make)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[['x']] {} False", done.stderr
