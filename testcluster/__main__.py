"""`python -m testcluster up|down|status|build|run`: a cluster for development."""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path

from testcluster import build, namespaces
from testcluster.cluster import Cluster
from testcluster.kwok import add_nodes
from testcluster.layout import Layout
from testcluster.machine import why_not

#: The exit status of `build --seconds` when the time was up; another run goes on.
OUT_OF_TIME = 75


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testcluster", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    building = actions.add_parser("build", help="build the cluster's programs into the cache")
    building.add_argument("--seconds", type=float, default=math.inf, help="stop after so many")
    up = actions.add_parser("up", help="start a cluster in DIR")
    up.add_argument("directory", type=Path)
    up.add_argument("--service-image", action="store_true", help="load the service's image too")
    down = actions.add_parser("down", help="end it and remove DIR")
    down.add_argument("directory", type=Path)
    status = actions.add_parser("status", help="say what runs")
    status.add_argument("directory", type=Path)
    load = actions.add_parser("load", help="make the images from this checkout and import them")
    load.add_argument("directory", type=Path)
    load.add_argument("--service-image", action="store_true", help="the service's image too")
    load.add_argument("--tag", default="1", help="import them under another tag")
    kwok = actions.add_parser("kwok", help="add nodes that kwok plays, with 8 GPUs each")
    kwok.add_argument("directory", type=Path)
    kwok.add_argument("nodes", type=int)
    restart = actions.add_parser("restart", help="end the cluster in DIR and start a new one there")
    restart.add_argument("directory", type=Path)
    restart.add_argument(
        "--service-image", action="store_true", help="load the service's image too"
    )
    inside = actions.add_parser("run", help="run a command inside the cluster's network")
    inside.add_argument("directory", type=Path)
    inside.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    problem = why_not()
    if problem:
        print(f"no cluster can run here: {problem}", file=sys.stderr)
        return 1
    return ACTIONS[arguments.action](arguments)


def _build(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    try:
        print(build.build(arguments.seconds))
        for program in build.BESIDE:
            print(_beside(program, arguments.seconds - (time.monotonic() - started)))
    except build.BuildFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except build.OutOfTimeError as error:
        print(error, file=sys.stderr)
        return OUT_OF_TIME
    return 0


def _beside(program: build.Program, seconds: float) -> str:
    """Build a program in what is left of the time; a cluster runs without it."""
    try:
        return str(build.build_beside(program, seconds))
    except build.OutOfTimeError:
        return f"{program.name} is not built yet: what needs it is skipped until it is"


def _up(arguments: argparse.Namespace) -> int:
    build.build()
    cluster = Cluster.up(arguments.directory, attached=False, with_service=arguments.service_image)
    print(f"KUBECONFIG={cluster.layout.kubeconfig}")
    print(f"network namespace {cluster.layout.network_namespace}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    namespaces.remove(Layout.load(arguments.directory))
    shutil.rmtree(arguments.directory)
    return 0


def _restart(arguments: argparse.Namespace) -> int:
    _down(arguments)
    return _up(arguments)


def _load(arguments: argparse.Namespace) -> int:
    cluster = Cluster.at(arguments.directory)
    cluster.load_images(with_service=arguments.service_image, tag=arguments.tag)
    return 0


def _kwok(arguments: argparse.Namespace) -> int:
    cluster = Cluster.at(arguments.directory)
    cluster.enter()
    add_nodes(cluster, arguments.nodes)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    cluster = Cluster.at(arguments.directory)
    for name in cluster.processes.names():
        print(f"{name:26} {cluster.processes.pid(name)}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    cluster = Cluster.at(arguments.directory)
    cluster.enter()
    os.environ["GPULEASE_CLUSTER"] = str(cluster.layout.directory)
    os.environ["KUBECONFIG"] = str(cluster.layout.kubeconfig)
    os.execvp(arguments.command[0], arguments.command)


ACTIONS = {
    "build": _build,
    "up": _up,
    "down": _down,
    "restart": _restart,
    "status": _status,
    "load": _load,
    "kwok": _kwok,
    "run": _run,
}

if __name__ == "__main__":
    sys.exit(main())
