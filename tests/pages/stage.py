"""A stage for pages: the real frames and assets, with leases that a test puts there.

It speaks the service's REST and events as `gpulease.protocol` says, from a plain dictionary, so
that a test can put a page into any state at once. The service itself is tested elsewhere.
"""

import asyncio
import json
import threading
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jupyterhub
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler, StaticFileHandler
from tornado.websocket import WebSocketHandler

from gpulease.errors import GPULeaseError
from gpulease.policy.document import form, json_schema
from gpulease.protocol.service import ClassView, LeaseView
from gpulease.service.languages import answer_in, language_of, problem_in
from gpulease.service.pages import PageReader, Site, handlers
from gpulease.service.routes import CompressedAssets
from gpulease.service.schemas.bodies import EventsQuery
from gpulease.service.schemas.shapes import AlertView, HealthView

PREFIX = "/services/gpulease/"
HUB_STATIC = next(
    str(path)
    for parent in Path(jupyterhub.__file__).parents
    if (path := parent / "share" / "jupyterhub" / "static").is_dir()
)
XSRF = "stage-xsrf"


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def lease(state: str = "active", **changes: Any) -> LeaseView:
    view: dict[str, Any] = {
        "id": "lease-1",
        "version": 1,
        "user": "ada",
        "server": "",
        "kernel_id": None,
        "origin": "page",
        "gpu_class": "sim",
        "count": 1,
        "simulated": True,
        "state": state,
        "reason": "",
        "sentence": "The GPU is ready.",
        "next_step": "Run cells with %%gpu.",
        "position": None,
        "expected_start": None,
        "created": soon(-120),
        "active_since": None,
        "hard_end": None,
        "warned_until": None,
        "drain_until": None,
        "ends_at": None,
        "ends_by": "",
        "verdict": "unknown",
        "utilisation": None,
        "keep": {"allowed": False, "left": 3, "seconds": 900.0, "reason": ""},
        "devices": [],
        "end": None,
        "click_runs_cells": "auto",
    }
    if state in {"active", "warned", "draining", "ended"}:
        device = {"uuid": "SIM-0", "name": "Simulated GPU 0", "memory": 8 << 30, "simulated": True}
        view |= {"active_since": soon(-100), "hard_end": soon(3600), "devices": [device]}
        view |= {"verdict": "busy", "utilisation": 0.4, "memory_used": 3 << 30}
    if state == "queued":
        view |= {"position": 1, "reason": "no_capacity"}
    if state == "starting":
        view["reason"] = "starting"
    if state == "warned":
        view |= {"warned_until": soon(20), "ends_at": soon(20), "ends_by": "released"}
        view |= {"verdict": "idle", "utilisation": 0.0, "reason": "idle"}
        view["keep"] = {"allowed": True, "left": 2, "seconds": 900.0, "reason": ""}
    if state == "draining":
        view |= {"drain_until": soon(30), "ends_at": soon(30), "ends_by": "drained"}
    if state == "ended":
        view["end"] = {"reason": "idle", "sentence": "It was idle.", "note": "", "at": soon(-5)}
    return view | changes  # type: ignore[return-value]


def gpu_class(**changes: Any) -> ClassView:
    view: dict[str, Any] = {
        "name": "sim",
        "title": "Simulated GPU",
        "memory": 8 << 30,
        "simulated": True,
        "total": 2,
        "free": 2,
        "queued": 0,
    }
    return view | changes  # type: ignore[return-value]


def a_day() -> dict[str, Any]:
    """Return a day of two GPUs, busy in the afternoon."""
    step, until = 480, datetime.now(UTC)
    items = []
    for number in range(180):
        at, afternoon = until - timedelta(seconds=(180 - number) * step), number > 90
        shares = {"busy": 1.5, "quiet": 0.25, "idle": 0.25} if afternoon else {"idle": 1.0}
        held = {"busy": 0.0, "quiet": 0.0, "idle": 0.0, "unknown": 0.0} | shares
        waits = {"waiting": 0.5, "granted": 2, "wait": 20.0, "longest_wait": 65.0}
        quiet = {"waiting": 0.0, "granted": 0, "wait": None, "longest_wait": None}
        items.append({"at": at.isoformat(), **held, **(waits if afternoon else quiet)})
    return {"since": items[0]["at"], "until": until.isoformat(), "step": step, "devices": 2,
            "items": items}  # fmt: skip


def use_of_two() -> dict[str, Any]:
    """Return a day of two GPUs, one free until the afternoon and one always leased."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    day = {"since": (until - timedelta(days=1)).isoformat(), "until": until.isoformat()}
    shares = [0.0] * 12 + [1.0] * 12
    items = [
        {"name": "GPU 0", "held": shares, "busy": [share * 0.9 for share in shares]},
        {"name": "GPU 1", "held": [1.0] * 24, "busy": [n / 23 for n in range(24)]},
    ]
    of = {"pool": "cards", "node": ""}
    return day | {"step": 3600, "items": [{"uuid": each["name"], **of, **each} for each in items]}


def a_replay() -> dict[str, Any]:
    """Return what shorter time-outs would have made of a week of two GPUs."""
    until = datetime.now(UTC)
    bins = [[2.0 if n % 40 > 15 else 0.5, 1.2 if n % 40 > 15 else 0.1, 0.0] for n in range(240)]
    week = [(n * 14_000, n * 14_000 + 9_000) for n in range(43)]
    used = [(begin + 1000, begin + 4000) for begin, _ in week]
    less = [(begin, begin + 5000) for begin, _ in week]
    fewer = [[held * 0.7, used, waiting] for held, used, waiting in bins]
    idle = [(150.0, 30.0, 9), (300.0, 24.0, 4), (600.0, 15.0, 1), (1200.0, 6.0, 0)]
    names = ("idle", "saved_hours", "interrupted")
    return {
        "sentences": ["Waits would have been 12 min shorter."],
        "assumption": "People behave as they did.",
        "complete": True,
        "since": (until - timedelta(days=7)).isoformat(),
        "until": until.isoformat(),
        "now": {"gpus": 2, "bins": bins, "gpu": {"uuid": "G", "held": week, "busy": used}},
        "then": {"gpus": 2, "bins": fewer, "gpu": {"uuid": "G", "held": less, "busy": used}},
        "idle": 600.0,
        "curve": [dict(zip(names, each, strict=True)) for each in idle],
    }


class Stage:
    """The server, in a thread of its own with an event loop of its own."""

    def __init__(self, *, card_acts: bool = True) -> None:
        self.card_acts = card_acts
        self.leases: dict[str, LeaseView] = {}
        self.ended: list[LeaseView] = []
        self.classes = [gpu_class()]
        self.servers: list[dict[str, Any]] = [
            {"name": "", "display_name": "", "ready": True, "url": "/user/ada/"}
        ]
        self.reader = PageReader("ada")
        self.groups: dict[str, list[str]] = {"cs101": ["grace", "joan", "linus", "mary"]}
        self.usage: list[dict[str, Any]] = []
        self.devices: list[dict[str, Any]] = []
        self.audit: list[dict[str, Any]] = []
        self.readings: list[dict[str, Any]] = []
        self.timeline: dict[str, Any] = a_day()
        self.devices_use = use_of_two()
        self.projects: list[dict[str, Any]] = []
        self.reservations: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.run_events: list[dict[str, Any]] = []
        self.incidents: list[dict[str, Any]] = []
        self.policy = {"version": 1, "text": "pools: {}\n", "author": "root", "at": soon(-60)}
        self.versions = [dict(self.policy)]
        self.time_outs = [asdict(each) | {"value": each.default} for each in form()]
        self.warned = 0
        self.replayed: dict[str, Any] = a_replay()
        self.health: HealthView = {
            "status": "ok",
            "version": "1.0.0",
            "store": "ok",
            "planning": "ok",
            "hub": "ok",
            "hubs": {},
            "provider": "local",
            "devices": 2,
            "simulated": True,
            "device_problem": "",
            "gaps": [],
            "pools": ["cards"],
            "alerts": [],
            "policy_version": 1,
            "policy_pinned": False,
            "supervisors": 0,
        }
        self.alerts: list[AlertView] = []
        self.findings: list[dict[str, Any]] = []
        self.changes: list[str] = []
        self.calls: list[tuple[str, str, Any]] = []
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.sockets: set[Any] = set()
        self.opened = 0
        self.event = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        if not self._ready.wait(20):
            raise TimeoutError("the stage did not come up")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        sockets = bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        server = HTTPServer(application(self))
        server.add_sockets(sockets)
        self._ready.set()
        await self._stop.wait()
        server.stop()
        await server.close_all_connections()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _on_loop(self, work: Any) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(20)

    def put(self, view: LeaseView) -> None:
        """Change a lease and tell every page."""
        known = self.leases.get(view["id"])
        view["version"] = known["version"] + 1 if known else view["version"]
        self.leases[view["id"]] = view
        self.event += 1
        self.tell({"type": "lease", "id": self.event, "lease": view, "now": soon(0)})

    def put_classes(self, classes: list[ClassView]) -> None:
        self.classes = classes
        self.event += 1
        self.tell({"type": "classes", "id": self.event, "classes": classes, "now": soon(0)})

    def tell(self, message: dict[str, Any]) -> None:
        self._on_loop(lambda: [socket.send(message) for socket in list(self.sockets)])

    def drop(self) -> None:
        """Cut every live channel; what is told before they come back is not for them."""

        def cut() -> None:
            for socket in list(self.sockets):
                socket.close()
                self.sockets.discard(socket)

        self._on_loop(cut)

    def called(self, method: str, path: str) -> list[Any]:
        return [body for verb, where, body in self.calls if (verb, where) == (method, path)]


class Base(RequestHandler):
    """Stands for the service's handler: somebody is logged in, and changes need the token."""

    @property
    def xsrf_token(self) -> bytes:
        return XSRF.encode()

    def check_xsrf_cookie(self) -> None:
        if self.request.headers.get("X-XSRFToken") != XSRF:
            raise HTTPError(403, "no token")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs["exc_info"][1]
        if isinstance(error, GPULeaseError):
            self.set_status(error.status)
            self.refuse(problem_in(language_of(self.request), error))
        else:
            super().write_error(status_code, **kwargs)

    def refuse(self, problem: GPULeaseError) -> None:
        self.finish(problem.to_problem())


class API(Base):
    def finish(self, chunk: Any = None) -> Any:
        return super().finish(answer_in(language_of(self.request), chunk))

    def initialize(self, stage: Stage) -> None:
        self.stage = stage

    def prepare(self) -> None:
        self.check_xsrf_cookie()
        self.path_name = self.request.path.partition("/api/")[2]
        body = json.loads(self.request.body) if self.request.body else None
        self.stage.calls.append((self.request.method or "", self.path_name, body))
        prepared = self.stage.answers.get(f"{self.request.method} {self.path_name}")
        if prepared:
            self.set_status(prepared[0])
            self.finish(prepared[1])

    def get(self) -> None:
        stage = self.stage
        offset, limit = (
            int(self.get_argument("offset", "0")),
            int(self.get_argument("limit", "50")),
        )
        if self.path_name == "leases":
            user = self.get_argument("user", "")
            ended = [each for each in stage.ended if user in {"", each["user"]}]
            self.finish({"items": ended[offset : offset + limit], "total": len(ended)})
        elif self.path_name == "groups":
            self.finish({"items": [{"name": name} for name in stage.groups]})
        elif self.path_name == "groups/members":
            self.finish({"items": stage.groups[self.get_argument("group")]})
        elif self.path_name == "reservations":
            self.finish({"items": stage.reservations, "total": len(stage.reservations)})
        elif self.path_name == "closures":
            self.finish({"items": []})
        elif self.path_name == "runs":
            self.finish({"items": stage.runs[offset : offset + limit], "total": len(stage.runs)})
        elif self.path_name.endswith("/events"):
            self.finish({"items": stage.run_events})
        elif self.path_name == "devices":
            self.finish({"items": stage.devices})
        elif self.path_name == "audit":
            words = self.get_argument("q").lower().split()
            found = [
                each
                for each in stage.audit
                if all(word in json.dumps(each).lower() for word in words)
            ]
            self.finish({"items": found[offset : offset + limit], "total": len(found)})
        elif self.path_name == "usage":
            self.finish({"items": stage.usage})
        elif self.path_name == "usage/devices":
            self.finish(stage.devices_use)
        elif self.path_name == "usage/timeline":
            self.finish(stage.timeline)
        elif self.path_name.endswith("/use"):
            self.finish({"items": stage.readings})
        elif self.path_name == "projects":
            self.finish({"items": stage.projects})
        elif self.path_name == "classes":
            self.finish({"items": stage.classes})
        elif self.path_name == "servers":
            self.finish({"items": stage.servers})
        elif self.path_name == "policy":
            self.finish(stage.policy)
        elif self.path_name == "policy/schema":
            self.finish(json_schema())
        elif self.path_name == "policy/time-outs":
            version = stage.policy["version"]
            self.finish(
                {
                    "items": stage.time_outs,
                    "version": version,
                    "pinned": bool(stage.policy.get("pinned")),
                }
            )
        elif self.path_name == "policy/versions":
            newest = stage.versions[::-1]
            self.finish({"items": newest[offset : offset + limit], "total": len(newest)})
        elif self.path_name.startswith("policy/versions/"):
            self.finish(stage.versions[int(self.path_name.rpartition("/")[2]) - 1])
        elif self.path_name == "incidents":
            found = stage.incidents
            at, size = (int(self.get_argument(name)) for name in ("offset", "limit"))
            self.finish({"items": found[at : at + size], "total": len(found), "offset": at})
        elif self.path_name == "alerts":
            self.finish({"items": stage.alerts})
        elif self.path_name == "health":
            self.set_status(503 if stage.health["status"] == "error" else 200)
            self.finish(stage.health)
        else:
            raise HTTPError(404)

    def post(self) -> None:
        stage = self.stage
        body = json.loads(self.request.body)
        if self.path_name == "policy/check":
            self.finish(
                {"ok": not stage.findings, "findings": stage.findings, "changes": stage.changes}
            )
            return
        if self.path_name == "whatif":
            self.finish(stage.replayed)
            return
        if self.path_name == "policy/time-outs":
            found = {
                "findings": stage.findings,
                "changes": [f"set {n} to {v}" for n, v in body["values"].items()],
            }
            self.finish(
                {
                    **found,
                    "valid": not stage.findings,
                    "warned": stage.warned,
                    "text": json.dumps(body["values"]),
                }
            )
            return
        if self.path_name == "leases":
            view = lease("queued", id="asked", gpu_class=body["gpu_class"], server=body["server"])
        else:
            view = lease("active", id=self.path_name.split("/")[1])
        self.finish(view | {"version": 2})

    def put(self) -> None:
        text = json.loads(self.request.body)["text"]
        version = len(self.stage.versions) + 1
        self.stage.policy = {"version": version, "text": text, "author": "ada", "at": soon(0)}
        self.stage.versions.append(dict(self.stage.policy))
        self.finish(self.stage.policy)

    def delete(self) -> None:
        if self.path_name.startswith("runs/"):
            (run,) = (each for each in self.stage.runs if each["id"] == self.path_name[5:])
            run |= {"state": "ended", "outcome": "cancelled", "sentence": "It was cancelled."}
            self.finish(run)
            return
        found = self.stage.leases[self.path_name.split("/")[1]]
        self.finish(dict(found) | {"state": "draining", "version": found["version"] + 1})


class Events(WebSocketHandler):
    def initialize(self, stage: Stage) -> None:
        self.stage = stage

    def open(self) -> None:
        stage = self.stage
        arguments = {n: self.get_query_argument(n) for n in self.request.arguments}
        self.language = EventsQuery.model_validate(arguments).language
        stage.opened += 1
        stage.sockets.add(self)
        snapshot = {
            "type": "snapshot",
            "id": stage.event,
            "leases": list(stage.leases.values()),
            "classes": stage.classes,
            "now": soon(0),
        }
        self.send(snapshot)

    def send(self, message: dict[str, Any]) -> None:
        self.write_message(json.dumps(answer_in(self.language, message)))

    def on_close(self) -> None:
        self.stage.sockets.discard(self)


class HubPage(RequestHandler):
    """The hub beside the service: a page that says where one went, and the card's frame."""

    def get(self) -> None:
        if self.request.path == "/hub/home":
            self.finish(f'<title>home</title><iframe src="{PREFIX}card" title="GPU"></iframe>')
        else:
            self.finish("<title>the hub</title>")


def application(stage: Stage) -> Application:
    site = Site(prefix=PREFIX, hub_url="/hub/", card_acts=stage.card_acts)
    return Application(
        [
            *handlers(Base, site, lambda handler: stage.reader),
            (f"{PREFIX}api/events", Events, {"stage": stage}),
            (f"{PREFIX}api/.*", API, {"stage": stage}),
            ("/hub/static/(.*)", StaticFileHandler, {"path": HUB_STATIC}),
            (
                "/hub/logo()",
                StaticFileHandler,
                {"path": f"{HUB_STATIC}/images/jupyterhub-80.png"},
            ),
            ("/hub/.*", HubPage),
        ],
        transforms=[CompressedAssets],
        log_function=lambda handler: None,
    )
