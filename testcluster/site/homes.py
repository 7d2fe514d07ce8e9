"""Homes on the node's disk: volumes that claims bind to, as a network file system would be."""

from pathlib import Path

from testcluster.api import Api
from testcluster.site.shipped import create

CLASS = "homes"


def add_volumes(api: Api, directory: Path, number: int) -> None:
    """Create volumes that may be mounted on many nodes; each is a directory below `directory`."""
    for index in range(number):
        home = directory / f"home-{index}"
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o777)  # the servers' user is not root
        create(
            api,
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"home-{index}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": CLASS,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(home)},
                },
            },
        )
