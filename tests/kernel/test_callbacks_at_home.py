"""What the page's callbacks change at home, between GPU cells and, on a subshell, beside one."""

from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.kernel.parts import SECONDS, HomeKernel, printed
from tests.kernel.test_widgets import send

#: A comm of the notebook's own: each message runs what it brings.
TARGET = """
def opened(comm, message):
    comm.on_msg(lambda message: exec(message['content']['data'], globals()))
get_ipython().kernel.comm_manager.register_target('mine', opened)
"""
#: A GPU cell that does ``first``, lets the test act, and then does ``then``.
CELL = """%%gpu
import pathlib, time
{first}
print('reached', flush=True)
while not pathlib.Path({flag!r}).exists():
    time.sleep(0.01)
{then}
"""


@pytest.fixture
def page(home: HomeKernel) -> HomeKernel:
    home.run(TARGET)
    send(home, "comm_open", comm_id="c1", target_name="mine", data={})
    return home


def subshell(home: HomeKernel) -> str:
    """Make one, as JupyterLab does for its comms."""
    message = home.client.session.msg("create_subshell_request", {})
    home.client.control_channel.send(message)
    reply = home.client.get_control_msg(timeout=SECONDS)
    found: str = reply["content"]["subshell_id"]
    return found


def send_to(home: HomeKernel, shell_id: str, kind: str, **content: object) -> None:
    message = home.client.session.msg(kind, content)
    message["header"]["subshell_id"] = shell_id
    home.client.shell_channel.send(message)


def test_a_callback_between_gpu_cells_changes_what_the_next_one_reads(page: HomeKernel) -> None:
    page.run("kept = [1]")
    assert page.run("%%gpu\nsum(kept)").result == "1"
    send(page, "comm_msg", comm_id="c1", data="kept.append(5)")
    assert page.run("%%gpu\nsum(kept)").result == "6"


@pytest.mark.parametrize("by_request", [False, True], ids=["comm", "request"])
@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("kept.append(2)", "kept.append(3)", "at the same time"),
        ("other = 1", "", ""),
    ],
    ids=["both", "neither"],
)
def test_a_subshell_beside_a_gpu_cell_is_a_writer(
    page: HomeKernel, tmp_path: Path, first: str, then: str, said: str, by_request: bool
) -> None:
    page.run("kept = [1]\nother = 0")
    page.run("%%gpu\nlen(kept)")
    shell_id = subshell(page)
    done, flag = tmp_path / "done", tmp_path / "flag"
    code = f"kept.append(9)\n__import__('pathlib').Path({str(done)!r}).touch()"

    def act() -> None:
        if by_request:
            send_to(page, shell_id, "execute_request", code=code, store_history=False)
        else:
            send_to(page, shell_id, "comm_msg", comm_id="c1", data=code)
        wait_for(done.exists, what="the subshell's change")
        flag.touch()

    cell = page.run(
        CELL.format(first=first, then=then, flag=str(flag)), when=printed("reached"), do=act
    )
    assert cell.ok, cell.traceback
    if said:
        assert said in cell.shown()
        assert "%gpu resolve kept home" in page.run("kept").error
        page.run("%gpu resolve kept home")
    assert page.run("kept").result == "[1, 9]"
    assert page.run("%%gpu\nkept").result == "[1, 9]"
