"""A whole notebook on Kubernetes: in a pod of its own, its GPU cells in a lease pod."""

import json
from typing import Any

import nbformat
import pytest

from testcluster.devices import card
from testcluster.layout import NODE
from testcluster.site.people import LONG, at_work
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WHERE = "import os; print('at', os.environ['HOSTNAME'], os.environ['NVIDIA_VISIBLE_DEVICES'])"
LAUNCH = """import sys
told = "import os; print(*[os.environ[x] for x in ('RANK', 'WORLD_SIZE', 'PET_NPROC_PER_NODE')])"
!{sys.executable} -P -m gpulease launch {sys.executable} -c "{told}\""""
CELLS = [
    "kept = [1]",
    f"%%gpu\nkept.append(2)\n{WHERE}\n{LAUNCH}",
    f"print('kept', kept)\n{WHERE}",
]


def notebook_of(cells: list[str]) -> str:
    new = nbformat.v4
    whole = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])
    return str(nbformat.writes(whole))


async def test_a_notebook_runs_in_a_pod_of_its_own_with_its_gpu_cells_in_another(
    site: Site,
) -> None:
    """It finds the notebook in the person's home and leaves its output there; then both pods go."""
    path = f"/api/v1/namespaces/{HUB_NAMESPACE}/pods"
    async with at_work(site, "rosa") as rosa:
        await rosa.run(f"open('train.ipynb', 'w').write({notebook_of(CELLS)!r})")
        body = {"notebook": "train.ipynb", "gpu_class": "card"}
        (run,) = (await rosa.browser.service_api("POST", "runs", body))["items"]

        async def ended() -> Any:
            found = await rosa.browser.service_api("GET", f"runs/{run['id']}")
            return found if found["state"] == "ended" else None

        done = await wait_for_async(ended, LONG, "the run to end", every=1.0)
        assert (done["outcome"], done["done"], done["attempt"]) == ("succeeded", 3, 1), done
        await rosa.run(f"result = open({run['result']!r}).read()")
        output = json.loads((await rosa.run("print(result)")).text)
        home, away = (_said(output["cells"][number]) for number in (2, 1))
        assert "kept [1, 2]" in home
        assert f"at jupyter-rosa--{run['server']} void" in home
        assert any(each in away for each in (card(number) for number in range(4)))
        assert "jupyter" not in away
        assert away.split()[-3:] == ["0", "1", "gpu"], "one node, of all its GPUs"

        def gone() -> bool:
            pods = [each["metadata"]["name"] for each in site.cluster.api.get(path)["items"]]
            return pods == ["jupyter-rosa"]

        await wait_for_async(gone, LONG, "the run's pod and its lease's to be gone")
        (pod,) = site.cluster.api.get(path)["items"]
        assert pod["spec"]["nodeName"] == NODE


def _said(cell: dict[str, Any]) -> str:
    return "".join("".join(each.get("text", "")) for each in cell["outputs"])
