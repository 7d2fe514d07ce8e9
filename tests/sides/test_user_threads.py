"""Threads that are the kernel's own are not taken for the user's."""

import asyncio
import gc
import subprocess
import threading
import uuid
import weakref

from ipykernel.parentpoller import ParentPollerUnix
from ipykernel.subshell import SubshellThread
from IPython.core.interactiveshell import InteractiveShell

from gpulease.sides.threads import UserThreads


def test_a_subshell_of_the_kernel_is_not_the_users_and_a_thread_of_theirs_is():
    threads = UserThreads()
    done = threading.Event()
    mine = threading.Thread(target=done.wait, name="my-loader")
    mine.start()
    # Its name is what tells it from others; JupyterLab makes one for each notebook.
    subshell_name = SubshellThread.__init__.__code__
    assert "subshell-" in subshell_name.co_consts
    kernels = threading.Thread(target=done.wait, name=f"subshell-{uuid.uuid4()}")
    kernels.start()
    try:
        assert threads.alive() == ["my-loader"]
    finally:
        done.set()
        mine.join()
        kernels.join()


def test_unnamed_threads_of_the_kernels_packages_are_not_the_users():
    threads = UserThreads()
    poller = ParentPollerUnix()  # named Thread-N, as what a user starts
    assert poller.name.startswith("Thread-")
    poller.run = lambda: done.wait()
    done = threading.Event()
    mine = threading.Thread(target=done.wait)
    poller.start()
    mine.start()
    try:
        assert threads.alive() == [mine.name]
    finally:
        done.set()
        mine.join()
        poller.join()


def test_the_loop_of_script_magics_is_not_the_users(capfd):
    """IPython makes it for the first ``%%bash`` and keeps it."""
    threads = UserThreads()
    shell = InteractiveShell.instance()
    try:
        shell.run_cell_magic("bash", "", "echo said")
        assert capfd.readouterr().out == "said\n"
        assert "run_forever" in str([thread.name for thread in threading.enumerate()])
        assert threads.alive() == []
    finally:
        shell.magics_manager.registry["ScriptMagics"]._event_loop_finalizer()
        InteractiveShell.clear_instance()


def test_what_waits_for_a_child_of_asyncio_runs_no_code_of_the_users():
    """Until Python 3.12 a thread for each child; ``%%bash`` has one that ends a moment later."""
    threads = UserThreads()

    async def with_a_child() -> list[str]:
        child = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE)
        try:
            return threads.alive()
        finally:
            await child.communicate(b"")

    assert asyncio.run(with_a_child()) == []


class Held:
    pass


def test_a_look_at_threads_keeps_nothing_of_theirs_alive():
    """Not even for the collector: what a thread packs has memory views that it must not clear."""
    ready, over = threading.Event(), threading.Event()
    seen = []

    def work():
        value = Held()
        seen.append(weakref.ref(value))
        ready.set()
        over.wait(20)

    thread = threading.Thread(target=work)
    gc.disable()
    try:
        thread.start()
        ready.wait(20)
        UserThreads({}).running()
        over.set()
        thread.join()
        assert seen[0]() is None
    finally:
        gc.enable()
