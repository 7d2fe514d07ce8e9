"""A lease pod's process, from its first line to its exit status.

Settings are read, the companion's process is started, and only then what a supervisor needs is
imported, so that both import at once.  Before that only the light part of the standard library may
be imported here.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from importlib import import_module
from pathlib import Path

from gpulease.companion import pod
from gpulease.companion.ahead import Spawned, spawn
from gpulease.companion.config import SupervisorConfig
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LEASE, ENV_WARM
from gpulease.sides.environment import marked_environment

log = logging.getLogger("gpulease.companion")
LOG_FORMAT = "gpulease.companion %(levelname)s %(message)s"


def run() -> int:
    """Run until the lease ends; the status and the last line say how it ended."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    pod.leave_early()
    os.umask(0o077)
    directory: Path | None = None
    try:
        config = None if os.environ.get(ENV_WARM) else pod.settings(os.environ)
        mark = config.lease_id if config is not None else os.environ[ENV_LEASE].strip()
        directory = pod.directory()
        environ = marked_environment(os.environ, mark, in_container=True)
        if config is not None and config.rank:
            reason = _serve_member(config)
        else:
            reason = _serve(config, mark, directory, spawn(sys.executable, environ, directory))
    except GPULeaseError as error:
        pod.last_words(f"{error.reason}: {error.sentence} {error.next_step}".rstrip())
        return pod.STATUS.get(error.reason, 1)
    except Exception as error:
        log.exception("the lease's supervisor failed")
        pod.last_words(f"failed: {type(error).__name__}")
        return 1
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
    pod.last_words(f"ended: {reason}")
    return 0


def _serve_member(config: SupervisorConfig) -> str:
    """Serve as a further node of a lease, which has no notebook."""
    import asyncio

    from gpulease.companion import tree
    from gpulease.companion.member import Member

    async def serve() -> str:
        tree.become_subreaper()
        return await Member(config).run()

    return asyncio.run(serve())


def _serve(config: SupervisorConfig | None, mark: str, directory: Path, spawned: Spawned) -> str:
    """Import the rest and serve; a companion whose supervisor fails ends by itself.

    ``config``: None in a pod that stands ready, which learns whose it is once it has imported all.
    """
    import asyncio

    from gpulease.companion import tree
    from gpulease.companion.kernels import Companions
    from gpulease.companion.supervisor import Supervisor

    async def serve() -> str:
        holder: list[Supervisor] = []

        async def died(kernel_id: str, detail: str) -> None:
            await holder[0].companion_died(kernel_id, detail)

        tree.become_subreaper()
        companions = Companions(directory, mark, died, in_container=True)
        await companions.prepare(spawned)
        told = config
        if told is None:
            from gpulease.companion.warm import until_claimed

            told = await until_claimed(companions)
            if told is None:
                await tree.end_tree({mark}, os.getpid(), grace=0.5)
                await companions.clean_up()
                return "not_needed"
        supervisor = Supervisor(told, companions, {mark, told.lease_id})
        holder.append(supervisor)
        # Needed once a notebook opens; until then the service and the notebook have to answer.
        supervisor.spawn(asyncio.to_thread(import_module, "gpulease.companion.manager"))
        return await supervisor.run()

    return asyncio.run(serve())
