"""What libraries patch in others at a notebook's word holds in the next cell, wherever it runs."""

import pytest

from tests.kernel.parts import HomeKernel

#: What patches, and what works from then on.
PATCHES = {
    "tqdm.pandas": (
        "import pandas as pd\nfrom tqdm import tqdm\ntqdm.pandas(desc='apply', disable=True)",
        "pd.Series([1, 2]).progress_apply(lambda x: x + 1).tolist()",
        "[2, 3]",
    ),
    "nest_asyncio": (
        "%%gpu\nimport nest_asyncio2\nnest_asyncio2.apply()",
        "import asyncio\nasyncio.run(asyncio.sleep(0, 5))",
        "5",
    ),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_by_a_library_holds_on_both_sides(home: HomeKernel, name: str) -> None:
    patch, uses, shows = PATCHES[name]
    cell = home.run(patch)
    assert cell.ok, cell.traceback
    for place in ("%%gpu\n", "", "%%gpu\n"):
        cell = home.run(place + uses)
        assert (cell.result, cell.error) == (shows, ""), cell.traceback
