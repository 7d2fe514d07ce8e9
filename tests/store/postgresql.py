"""A private PostgreSQL that runs while it is wanted."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from tests.helpers import is_root, postgresql_bin, wait_for


class PostgreSQL:
    """A private PostgreSQL on a Unix socket: no port, no password, no other user's data."""

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        #: What ``tests.store.tables`` knows of the database that others are copies of, and the
        #: name of the copy that it empties for each test.
        self.looks: dict[str, list[list[Any]]] = {}
        self.emptied = ""
        binaries = postgresql_bin()
        assert binaries is not None
        data = folder / "data"
        # PostgreSQL's programs refuse to run as root.
        self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if not is_root():
            self._user = []
        else:
            shutil.chown(folder, "postgres", "postgres")
        self._environment = {**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(folder)}
        self._run(binaries / "initdb", "-D", data, "-U", "gpulease", "-A", "trust", "--no-sync")
        log = (folder / "log").open("wb")
        self._server = subprocess.Popen(
            [*self._user, str(binaries / "postgres"), "-D", str(data), "-k", str(folder),
             "-c", "listen_addresses=", "-c", f"fsync={'on' if fsync else 'off'}",
             "-c", "max_connections=40"],
            cwd=folder, env=self._environment, stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        log.close()
        try:
            wait_for(self._answers, 60, "PostgreSQL answers")
        except BaseException:
            self.stop()
            raise

    def _run(self, *command: object) -> None:
        subprocess.run([*self._user, *map(str, command)], cwd=self.folder, check=True,
                       env=self._environment, capture_output=True)  # fmt: skip

    def _answers(self) -> bool:
        assert self._server.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(host=str(self.folder), user="gpulease", dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def connected(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.folder), user="gpulease", dbname=database, autocommit=True
        )

    def address(self, database: str) -> str:
        return f"postgresql://gpulease@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        with self.connected() as connection:
            connection.execute(statement)

    def database(self, name: str = "", template: str = "template1") -> str:
        """Return the address of a new database: empty, or a copy of one that nobody is in."""
        name = name or f"t{uuid4().hex}"
        self.execute(f"create database {name} template {template}")
        return self.address(name)

    def stop(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


@contextmanager
def postgresql(*, fsync: bool = False) -> Iterator[PostgreSQL]:
    """Run one; what it says is on the disk is there only with ``fsync``."""
    # A Unix socket's path must be short; pytest's own folders are not, nor open to another user.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o755)
    try:
        running = PostgreSQL(folder, fsync=fsync)
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
