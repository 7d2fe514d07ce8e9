"""A real notebook server with the extension: bus, REST, supervisors, kernels."""

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tornado.websocket import websocket_connect

from gpulease.companion.config import Parking
from gpulease.companion.tree import lease_processes
from gpulease.lab import supervisors
from gpulease.system.process_table import process_table
from tests.companion.parts import (
    LEASE_ID,
    TOKEN,
    Cells,
    Home,
    LeaseService,
    closing,
    proc_file,
)
from tests.helpers import process_is_gone, wait_for_async
from tests.lab.parts import WEB_TOKEN, Kernel, lease_view, server

pytestmark = pytest.mark.processes


def _supervisors(service, state):
    return [r for r in service.reports if r["type"] == "supervisor" and r["state"] == state]


async def _leased(service):
    """Grant a lease and return its supervisor's hello."""
    service.publish({"type": "lease", "id": 2, "lease": lease_view(state="starting")})
    hello = await service.hello()
    await wait_for_async(lambda: _supervisors(service, "started"), 30, "the report")
    return hello


def test_kernels_learn_and_ask_over_the_bus(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            path = notebook.bus_path()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            kernel = await Kernel.connect(path, "k1")
            try:
                snapshot = await kernel.event("snapshot")
                assert snapshot["leases"] == []
                await kernel.event("link", lambda e: e["up"])
                service.publish({"type": "lease", "id": 2, "lease": lease_view(state="queued")})
                told = await kernel.event("lease")
                assert told["lease"]["state"] == "queued"
                classes = [{"name": "small", "free": 1}]
                service.publish({"type": "classes", "id": 3, "classes": classes})
                assert (await kernel.event("classes"))["classes"] == classes

                service.answers["POST", "leases"] = (201, lease_view(state="queued"))
                asked = await kernel.call("ask", gpu_class="small")
                assert asked["ok"]["id"] == LEASE_ID
                body = {"gpu_class": "small", "kernel_id": "k1", "origin": "magic"}
                assert service.calls[-1] == ("POST", "leases", body)

                service.answers["GET", f"leases/{LEASE_ID}"] = (200, lease_view(state="ended"))
                assert (await kernel.call("lease", lease_id=LEASE_ID))["ok"]["state"] == "ended"

                view = {"address": "tcp://x", "server_key": "y"}
                service.answers["POST", f"leases/{LEASE_ID}/connections"] = (201, view)
                found = await kernel.call("connection", lease_id=LEASE_ID, client_key="Z" * 40)
                assert found["ok"] == view
                assert service.calls[-1][2] == {"client_key": "Z" * 40, "kernel_id": "k1"}

                runs = {"python": "3.11.7", "executable": "/usr/bin/python", "packages": {}}
                await kernel.call("environment", **runs)
                await kernel.call("ask")
                assert service.calls[-1][2]["environment"] == runs

                problem = {"reason": "keep_refused", "title": "No.", "status": 409}
                service.answers["POST", f"leases/{LEASE_ID}/keep"] = (409, problem)
                refused = await kernel.call("keep", lease_id=LEASE_ID)
                assert refused["problem"]["reason"] == "keep_refused"
                assert (await kernel.call("keep", lease_id="../x"))["problem"]["status"] == 400
                assert (await kernel.call("fly", lease_id="a"))["problem"]["reason"] == "malformed"
            finally:
                await kernel.close()

    asyncio.run(test())


def test_malformed_lines_cost_only_the_connection_that_sent_them(tmp_path):
    async def test():
        async with server(tmp_path) as (_, notebook):
            path = notebook.bus_path()
            good, bad = await Kernel.connect(path, "k1"), await Kernel.connect(path, "k2")
            try:
                bad.send(b"{not json\n")
                await bad._task  # hung up
                assert (await good.call("leases"))["ok"] == []
            finally:
                await good.close()
                await bad.close()

    asyncio.run(test())


def test_a_lost_service_is_told_and_reports_are_made_again(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            kernel = await Kernel.connect(notebook.bus_path(), "k1")
            try:
                await _leased(service)
                service.reports.clear()
                service.leases = [lease_view()]
                service.readers[-1].close()
                await kernel.event("link", lambda e: not e["up"])
                await wait_for_async(lambda: _supervisors(service, "started"), 30, "the report")
                await wait_for_async(
                    lambda: any(report["type"] == "kernels" for report in service.reports),
                    30,
                    "the kernels' report",
                )
                assert len(service.of_type("hello")) == 1
            finally:
                await kernel.close()

    asyncio.run(test())


def test_the_service_is_told_in_which_language_lab_is(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            service.answers["GET", "projects"] = (200, {"items": []})

            def said():
                return [each["language"] for each in service.reports if each["type"] == "language"]

            async def opened(language):
                await notebook.json(f"/gpulease/api/status?language={language}")
                await notebook.json("/gpulease/api/projects")
                return service.languages[-1]

            assert await opened("en") == ""
            assert await opened("de_DE") == "de-DE"
            assert await opened("de_DE") == "de-DE"
            assert await opened("no%20language%0d%0aX-Y:%20z") == "de-DE"
            assert await opened("x" * 100) == "de-DE"
            await wait_for_async(said, 30, "the language")
            service.readers[-1].close()
            await wait_for_async(lambda: len(said()) > 1, 30, "the language, on a new channel")
            assert said() == ["de-DE", "de-DE"]
            assert await opened("fr-FR") == "fr-FR"
            await wait_for_async(lambda: said()[-1] == "fr-FR", 30, "another language")

    asyncio.run(test())


def test_an_event_that_cannot_be_taken_brings_everything_anew(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            kernel = await Kernel.connect(notebook.bus_path(), "k1")
            try:
                await kernel.event("link", lambda e: e["up"])
                service.leases = [lease_view(state="queued")]
                service.publish({"type": "lease", "id": 2})
                found = await kernel.event("snapshot", lambda e: e["leases"])
                assert found["leases"][0]["state"] == "queued"
                service.publish({"type": "lease", "id": 3, "lease": lease_view(state="starting")})
                assert (await kernel.event("lease"))["lease"]["state"] == "starting"
            finally:
                await kernel.close()

    asyncio.run(test())


def test_a_granted_lease_gets_a_supervisor_and_an_ended_one_loses_everything(tmp_path):
    async def test():
        async with server(tmp_path) as (service, _notebook):
            hello = await _leased(service)
            pids = _supervisors(service, "started")[0]["pids"]
            assert pids == [hello["pid"]]
            environ = proc_file(hello["pid"], "environ")
            assert f"GPULEASE_LEASE={LEASE_ID}".encode() in environ
            assert b"JUPYTER_TOKEN" not in environ
            assert TOKEN.encode() not in environ
            service.publish({"type": "lease", "id": 3, "lease": lease_view(state="ended")})
            await wait_for_async(lambda: process_is_gone(hello["pid"]), 30, "the supervisor's end")
            await wait_for_async(lambda: _supervisors(service, "exited"), 30, "the report")
            assert lease_processes({LEASE_ID}) == set()

    asyncio.run(test())


def test_a_killed_supervisor_is_reported_and_its_tree_cleaned(tmp_path):
    async def test():
        async with server(tmp_path) as (service, _notebook):
            hello = await _leased(service)
            home = Home(hello["address"], hello["public_key"])
            try:
                service.tell({"type": "admit", "client_key": home.public, "kernel_id": "k1"})
                opened = (await home.open("k1"))["ok"]
                with closing(Cells(opened["connection"], home)) as cells:
                    await cells.ready()
                    stray = int(
                        await cells.text(
                            "import subprocess\n"
                            "print(subprocess.Popen(['setsid', 'sleep', '600']).pid)"
                        )
                    )
                os.kill(hello["pid"], signal.SIGKILL)
                await wait_for_async(lambda: _supervisors(service, "exited"), 30, "the report")
                report = _supervisors(service, "exited")[0]
                assert (report["lease_id"], report["attempt"]) == (LEASE_ID, 1)
                assert "-9" in report["detail"]
                assert process_is_gone(opened["pid"])
                assert process_is_gone(stray)
                # The same attempt is not started again; that is for the service to decide.
                service.publish({"type": "lease", "id": 4, "lease": lease_view(state="active")})
                kernels = len(service.reports)
                service.publish({"type": "classes", "id": 5, "classes": []})
                assert len(service.reports) == kernels
                assert lease_processes({LEASE_ID}) == set()
            finally:
                home.close()

    asyncio.run(test())


def test_one_supervisor_waits_ahead_and_is_replaced_after_use(tmp_path):
    async def test():
        async with server(tmp_path, standby=True) as (service, notebook):
            children = _children(notebook.process.pid)
            (ahead,) = await wait_for_async(lambda: children() or None, 60, "one ahead")
            hello = await _leased(service)
            assert hello["pid"] == ahead
            await wait_for_async(lambda: len(children()) == 2, 60, "another ahead")

    asyncio.run(test())


def test_the_next_one_is_started_as_soon_as_the_last_one_has_its_companion(monkeypatch):
    """Not after a fixed time: the second request in a row finds it ready."""
    monkeypatch.setattr(supervisors, "_REPLACE_SECONDS", 3600.0)

    async def test():
        service = LeaseService()
        kept = supervisors.Supervisors(service.url, lambda _: None, standby=True)
        try:
            await kept.open()
            first = kept.ready_ahead
            lease = lease_view(state="starting", grant={})
            await kept.granted(lease, lease["grant"])
            assert kept.ready_ahead is None
            hello = await service.hello()
            assert hello["pid"] == first
            home = Home(hello["address"], hello["public_key"])
            service.tell({"type": "admit", "client_key": home.public, "kernel_id": ""})
            assert (await home.open("k1"))["ok"]
            home.close()
            await wait_for_async(lambda: kept.ready_ahead, 60, "another ahead")
        finally:
            await kept.close(10.0)
            await service.stop()

    asyncio.run(test())


def _children(pid):
    """The supervisors that a notebook server started ahead; it may have other children."""

    def found():
        rows = [row for row in process_table().values() if row.parent == pid and row.alive]
        return [row.pid for row in rows if b"--standby" in proc_file(row.pid, "cmdline")]

    return found


def test_a_stopped_server_leaves_no_process(tmp_path):
    async def test():
        async with server(tmp_path, standby=True) as (service, notebook):
            hello = await _leased(service)
            await notebook.stop()
            await wait_for_async(lambda: process_is_gone(hello["pid"]), 30, "the supervisor")
            await wait_for_async(lambda: service.of_type("bye"), 30, "bye")
            assert service.of_type("bye")[0]["reason"] == "parent_gone"
            assert lease_processes({LEASE_ID}) == set()

    asyncio.run(test())


def test_a_restarted_kernel_loses_its_companion_and_the_lease_stays(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            kernel = await notebook.json("/api/kernels", "POST", {"name": "python3"})
            hello = await _leased(service)
            home = Home(hello["address"], hello["public_key"])
            try:
                service.tell({"type": "admit", "client_key": home.public, "kernel_id": ""})
                opened = (await home.open(kernel["id"]))["ok"]
                restarted = await notebook.fetch(f"/api/kernels/{kernel['id']}/restart", "POST", {})
                assert restarted.code == 200
                await wait_for_async(lambda: process_is_gone(opened["pid"]), 30, "the companion")
                assert not process_is_gone(hello["pid"])
                assert (await home.call("ping"))["ok"]
            finally:
                home.close()

    asyncio.run(test())


def test_a_restarted_kernel_finds_nothing_parked_and_another_still_does(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            kernel = await notebook.json("/api/kernels", "POST", {"name": "python3"})
            park = tmp_path / "park"
            granted = lease_view(state="starting", grant={"park_dir": str(park)})
            service.publish({"type": "lease", "id": 2, "lease": granted})
            await service.hello()
            parking = Parking(str(park), "stu", "")
            for kernel_id in (kernel["id"], "another"):
                parking.prepare(kernel_id)
                parking.file(kernel_id).write_bytes(b"parked")
            await notebook.fetch(f"/api/kernels/{kernel['id']}/restart", "POST", {})
            await wait_for_async(lambda: not parking.file(kernel["id"]).exists(), 30, "the drop")
            assert parking.file("another").exists()

    asyncio.run(test())


#: A kernel that the server did not start: it asks for a GPU, and is there until it is killed.
_OTHER = """
import sys
from gpulease.channel.unix import UnixClient
def nothing(*_): return None
client = UnixClient(sys.argv[1], sys.argv[2], pushed=nothing, lost=nothing, gone=nothing)
client.call("ask", {})
print("asked", flush=True)
sys.stdin.read()
"""


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def test_a_kernel_of_another_program_ends_its_lease_when_its_process_does(tmp_path):
    """``nbconvert --execute`` in a terminal: nobody tells the server that its kernel has ended."""

    async def test():
        async with server(tmp_path) as (service, notebook), contextlib.AsyncExitStack() as stack:
            view = lease_view(state="queued", kernel_id="other-1")
            service.answers["POST", "leases"] = (201, view)
            service.answers["DELETE", f"leases/{LEASE_ID}"] = (200, view)
            kernels = []
            for name in ("other-1", "other-2"):
                kernels.append(
                    process := await asyncio.create_subprocess_exec(
                        sys.executable, "-c", _OTHER, str(notebook.bus_path()), name,
                        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    )
                )  # fmt: skip
                stack.callback(_kill, process)
                assert await process.stdout.readline() == b"asked\n"

            def reported():
                found = [r["kernels"] for r in service.reports if r["type"] == "kernels"]
                return [kernel["id"] for kernel in found[-1]] if found else []

            def ends():
                return [body for method, _, body in service.calls if method == "DELETE"]

            await wait_for_async(lambda: reported() == ["other-1", "other-2"], 30, "both kernels")
            _kill(kernels[0])
            await wait_for_async(lambda: reported() == ["other-2"], 30, "the second alone")
            assert not ends(), "the other one uses the lease"
            _kill(kernels[1])
            await wait_for_async(lambda: ends() == [{"note": "", "force": True}], 30, "the end")

    asyncio.run(test())


def test_an_abandoned_tab_is_no_activity(tmp_path):
    """What a page asks by itself must not keep a server from the hub's culler."""

    async def test():
        async with server(tmp_path) as (service, notebook):
            service.answers["POST", f"leases/{LEASE_ID}/keep"] = (200, lease_view())
            service.answers["POST", f"leases/{LEASE_ID}/upgrade"] = (200, lease_view())
            before = (await notebook.json("/api/status"))["last_activity"]
            for method, path in (
                ("GET", "status"),
                ("GET", "leases"),
                ("POST", "leases"),
                ("POST", f"leases/{LEASE_ID}/keep"),
                ("POST", f"leases/{LEASE_ID}/upgrade"),
                ("DELETE", f"leases/{LEASE_ID}"),
            ):
                await notebook.fetch(
                    f"/gpulease/api/{path}", method, {} if method != "GET" else None
                )
            assert (await notebook.json("/api/status"))["last_activity"] == before
            await notebook.fetch("/api/contents")  # what a person does, for comparison
            assert (await notebook.json("/api/status"))["last_activity"] > before

    asyncio.run(test())


def test_kernels_are_reported_with_the_one_that_ran_a_cell_last(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            kernel = await notebook.json("/api/kernels", "POST", {"name": "python3"})
            bus = await Kernel.connect(notebook.bus_path(), kernel["id"])
            try:
                await bus.call("cell", busy=True)

                def reported():
                    found = [r["kernels"] for r in service.reports if r["type"] == "kernels"]
                    return found and found[-1] and found[-1][0]["last_cell"]

                await wait_for_async(reported, 30, "the kernels' report")
                assert (await notebook.json("/gpulease/api/status"))["page_kernel"] == kernel["id"]
                service.publish({"type": "lease", "id": 2, "lease": lease_view()})
                told = await bus.event("lease")
                assert told["lease"]["kernel_id"] == kernel["id"]
                assert "grant" not in told["lease"]
                session = {
                    "path": "week1/lab.ipynb",
                    "type": "notebook",
                    "name": "",
                    "kernel": {"id": kernel["id"]},
                }
                await notebook.json("/api/sessions", "POST", session)
                await bus.call("cell", busy=False)

                def named():
                    found = [r["kernels"] for r in service.reports if r["type"] == "kernels"]
                    return found[-1][0]["notebook"] == "week1/lab.ipynb" and found[-1][0]["leases"]

                await wait_for_async(named, 30, "the notebook's name in the report")
            finally:
                await bus.close()

    asyncio.run(test())


def test_the_front_end_asks_keeps_returns_and_follows(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            url = f"ws://127.0.0.1:{notebook.port}/api/events/subscribe?token={WEB_TOKEN}"
            events = await websocket_connect(url)
            service.publish({"type": "lease", "id": 2, "lease": lease_view(state="queued")})
            while True:
                event = json.loads(await events.read_message())
                if event.get("event") == "lease":
                    break
            assert event["lease"]["id"] == LEASE_ID
            events.close()
            listed = await notebook.json("/gpulease/api/leases")
            assert [lease["id"] for lease in listed["leases"]] == [LEASE_ID]
            service.answers["POST", "leases"] = (201, lease_view(state="queued"))
            asked = await notebook.fetch("/gpulease/api/leases", "POST", {"gpu_class": "small"})
            assert asked.code == 201
            wanted = {"kernel_id": None, "origin": "lab", "gpu_class": "small"}
            assert service.calls[-1][2] == wanted
            service.answers["DELETE", f"leases/{LEASE_ID}"] = (200, lease_view(state="ended"))
            await notebook.fetch(f"/gpulease/api/leases/{LEASE_ID}", "DELETE")
            assert service.calls[-1][:2] == ("DELETE", f"leases/{LEASE_ID}")
            bad = await notebook.fetch("/gpulease/api/leases", "POST", [1])
            assert bad.code == 400
            assert json.loads(bad.body)["reason"] == "malformed"
            assert bad.headers["Content-Type"].startswith("application/problem+json")

    asyncio.run(test())


def test_the_front_end_learns_what_was_before_and_where_the_page_is(tmp_path):
    async def test():
        async with server(tmp_path) as (service, notebook):
            past = {"items": [lease_view(state="ended")], "total": 1, "offset": 0, "limit": 20}
            service.answers["GET", "leases"] = (200, past)
            answer = await notebook.json("/gpulease/api/history")
            assert [lease["state"] for lease in answer["items"]] == ["ended"]
            reserved = {"items": [{"id": "r1"}], "total": 1, "offset": 0, "limit": 10}
            service.answers["GET", "reservations"] = (200, reserved)
            assert await notebook.json("/gpulease/api/reservations") == reserved
            projects = {"items": [{"name": "vision", "mine": True, "budget": None}]}
            service.answers["GET", "projects"] = (200, projects)
            assert await notebook.json("/gpulease/api/projects") == projects
            run = {"items": [{"id": "r1", "result": "/home/stu/work/train.run-r1.ipynb"}]}
            service.answers["POST", "runs"] = (201, run)
            path = {"path": "work/train.ipynb"}
            submitted = await notebook.fetch("/gpulease/api/runs", "POST", path)
            assert (submitted.code, json.loads(submitted.body)) == (201, run)
            [(_, _, sent)] = [each for each in service.calls if each[:2] == ("POST", "runs")]
            assert Path(sent["notebook"]).is_absolute()
            assert sent["notebook"].endswith("/work/train.ipynb")
            status = await notebook.json("/gpulease/api/status")
            assert status["service_page"].startswith("/")
            now = datetime.fromisoformat(status["now"])
            assert abs((datetime.now(UTC) - now).total_seconds()) < 60

    asyncio.run(test())


def test_strangers_get_nothing(tmp_path):
    async def test():
        async with server(tmp_path, hub=False) as (_, notebook):
            from tornado.httpclient import AsyncHTTPClient

            url = f"http://127.0.0.1:{notebook.port}/gpulease/api/leases"
            response = await AsyncHTTPClient().fetch(url, raise_error=False)
            assert response.code == 403

    asyncio.run(test())


def test_without_a_hub_the_bus_says_so(tmp_path):
    async def test():
        async with server(tmp_path, hub=False) as (_, notebook):
            kernel = await Kernel.connect(notebook.bus_path(), "k1")
            try:
                problem = (await kernel.call("ask"))["problem"]
                assert problem["reason"] == "no_hub"
                assert "%gpu connect" in problem["next_step"]
                assert (await kernel.call("leases"))["ok"] == []
            finally:
                await kernel.close()
            status = await notebook.json("/gpulease/api/status")
            assert (status["hub"], status["up"]) == (False, False)

    asyncio.run(test())
