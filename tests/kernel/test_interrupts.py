"""An interrupt reaches a GPU cell wherever it waits, and the next cell runs."""

import pytest

from tests.kernel.parts import HomeKernel, Message, printed

STARTED = "print('started', flush=True)\n"


@pytest.mark.parametrize(
    ("code", "ename"),
    [
        ("while True: pass", "KeyboardInterrupt"),
        ("import time; time.sleep(600)", "KeyboardInterrupt"),
        ("import threading; threading.Event().wait(600)", "KeyboardInterrupt"),
        ("import subprocess; subprocess.run(['sleep', '600'])", "KeyboardInterrupt"),
        ("import asyncio; await asyncio.sleep(600)", "CancelledError"),
    ],
    ids=["loop", "c call", "lock", "child", "await"],
)
def test_interrupt(home: HomeKernel, code: str, ename: str) -> None:
    cell = home.run(f"%%gpu\n{STARTED}{code}", when=printed("started"), do=home.interrupt)
    assert cell.error.startswith(ename), cell.traceback
    assert "before the cell ran" not in "".join(cell.traceback), "it had printed"
    assert home.run("%%gpu\n1 + 1").result == "2"


@pytest.mark.parametrize("ask", ["input('? ')", "__import__('getpass').getpass('? ')"])
def test_interrupt_while_the_cell_asks(home: HomeKernel, ask: str) -> None:
    cell = home.run(f"%%gpu\n{ask}", do=home.interrupt)
    assert cell.error == "KeyboardInterrupt: Interrupted by user"
    assert home.run("%%gpu\ninput('again? ')", answers=("yes",)).result == "'yes'"


def test_interrupt_ends_what_the_cell_started_not_the_companion(home: HomeKernel) -> None:
    before = home.run("%%gpu\nimport os; os.getpid()").result
    home.run(f"%%gpu\n{STARTED}while True: pass", when=printed("started"), do=home.interrupt)
    assert home.run("%%gpu\nos.getpid()").result == before


def test_a_second_interrupt_gives_the_companion_up(home: HomeKernel) -> None:
    code = (
        "%%gpu\nimport os, sys\n"
        "n = 0\n"
        "while True:\n"
        "    try:\n"
        "        print('waiting', n, flush=True)\n"
        "        __import__('time').sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        "        n += 1\n"
    )
    before = home.run("%%gpu\nimport os; os.getpid()").result

    def again(message: Message) -> bool:
        if printed("waiting 0")(message):
            home.interrupt()
        return printed("waiting 1")(message)

    cell = home.run(code, when=again, do=home.interrupt)
    assert "given up" in cell.error, cell.traceback
    after = home.run("%%gpu\nimport os; os.getpid()")
    assert after.ok, after.traceback
    assert after.result != before, "the next GPU cell gets a new companion"


def test_interrupt_of_a_home_cell_is_the_plain_one(home: HomeKernel) -> None:
    cell = home.run(f"{STARTED}while True: pass", when=printed("started"), do=home.interrupt)
    assert cell.error.startswith("KeyboardInterrupt")
    cell = home.run(
        f"{STARTED}import asyncio; await asyncio.sleep(600)",
        when=printed("started"),
        do=home.interrupt,
    )
    assert cell.error.startswith("CancelledError")
