"""The port carried out by the official ``kubernetes`` package's asyncio side.

Owns configuration (kubeconfig or in-cluster), renewal of tokens, time-outs and the translation of
answers into the port's errors.  Only the package's transport is used, never its model classes: they
change with every release of Kubernetes.  Refuses to try anything again but a call whose token was
too old: callers know better what may be repeated.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from gpulease.providers.kubernetes.client import (
    TOKEN_REVIEWS,
    ClientError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Keep,
    Listing,
    Manifest,
    NotFoundError,
    Resource,
    TokenIdentity,
    UnavailableError,
    WatchEvent,
    whole,
)
from gpulease.providers.kubernetes.framing import Lines

#: Objects of one page of a list.
PAGE = 500
#: Seconds that an ordinary call may take.
CALL_SECONDS = 30.0
#: Seconds without a word after which a watch that should have ended is given up.
_SILENT = 15.0
_TRANSPORT = (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError)
_EXTRA = "authentication.kubernetes.io/"

#: Told of each call: verb, collection, HTTP status (0: no answer), seconds.
Observe = Callable[[str, str, int, float], None]


class OfficialClient:
    """Speaks to one API server.

    Args:
        kubeconfig: path of a kubeconfig file; "" is in-cluster, else the default kubeconfig.
        context: which of its contexts; "" is the current one.
        observe: told of each call.
        user_agent: how the calls are named in the server's audit log.
    """

    def __init__(
        self,
        kubeconfig: str = "",
        context: str = "",
        *,
        observe: Observe = lambda *_: None,
        user_agent: str = "gpulease",
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._observe = observe
        self._user_agent = user_agent
        self._api: Any = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Cut all connections and wait for their end; the next call opens new ones."""
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def list_all(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep = whole,
    ) -> Listing:
        """Return every object of a collection; see the port."""
        items: list[Manifest] = []
        query = {**_selectors(labels, fields), "limit": str(PAGE)}
        while True:
            found = await self._call("list", resource, namespace, query=query)
            kept = (keep(each) for each in found.pop("items", None) or [])
            items += [each for each in kept if each is not None]
            meta = found.get("metadata") or {}
            if not meta.get("continue"):
                return Listing(items, str(meta.get("resourceVersion", "")))
            query["continue"] = meta["continue"]

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        seconds: int = 30,
    ) -> AsyncIterator[WatchEvent]:
        """Yield what changes; see the port."""
        query = {
            **_selectors(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
        }
        limit = aiohttp.ClientTimeout(
            total=None, sock_connect=CALL_SECONDS, sock_read=seconds + _SILENT
        )
        began = time.monotonic()
        response = await self._send("GET", resource.path(namespace), query, None, limit)
        try:
            self._observe("watch", resource.plural, response.status, time.monotonic() - began)
            if response.status >= 400:
                raise _error(response.status, await _text(response), response.headers)
            yield WatchEvent("OPENED")
            async for event in _events(response):
                yield event
        finally:
            # A watch never ends by itself here: no goodbye is waited for that nobody would hear.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """Return one object; see the port."""
        return await self._call("get", resource, namespace, name)

    async def create(
        self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False
    ) -> Manifest:
        """Create an object; see the port."""
        query = {"dryRun": "All"} if dry_run else {}
        return await self._call("create", resource, namespace, query=query, body=body)

    async def patch(
        self, resource: Resource, name: str, body: Manifest, namespace: str = ""
    ) -> Manifest:
        """Change an object; see the port."""
        return await self._call("patch", resource, namespace, name, body=body)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace: int | None = None,
    ) -> None:
        """Begin to delete an object; see the port."""
        if grace is not None and grace < 1:
            raise ValueError("a pod that is deleted without grace frees its device too early")
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._call("delete", resource, namespace, name, body=body)

    async def review(self, token: str, audience: str) -> TokenIdentity | None:
        """Return whose token this is; see the port."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        found = await self._call("create", TOKEN_REVIEWS, body=body)
        return _identity(found.get("status") or {}, audience)

    async def _call(
        self,
        verb: str,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        *,
        query: dict[str, str] | None = None,
        body: Manifest | None = None,
    ) -> Manifest:
        path = resource.path(namespace, name)
        limit = aiohttp.ClientTimeout(total=CALL_SECONDS)
        began = time.monotonic()
        status = 0
        try:
            response = await self._send(_METHODS[verb], path, query or {}, body, limit)
            status = response.status
            text = await _text(response)
        finally:
            self._observe(verb, resource.plural, status, time.monotonic() - began)
        if status >= 400:
            raise _error(status, text, response.headers)
        return _object(text)

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Manifest | None,
        limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send once; when the token was too old, read the configuration anew and send again."""
        response = await self._send_once(method, path, query, body, limit)
        if response.status != 401:
            return response
        response.release()
        await self.close()
        return await self._send_once(method, path, query, body, limit)

    async def _send_once(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Manifest | None,
        limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        api = await self._opened()
        headers = {"Accept": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        try:
            method, url, headers, body, _ = await api.param_serialize(
                method,
                path,
                query_params=query,
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await api.call_api(method, url, headers, body, _request_timeout=limit)
        except _TRANSPORT as error:
            raise _silent(error) from error
        return answer.response  # type: ignore[no-any-return]

    async def _opened(self) -> Any:
        async with self._opening:
            if self._api is None:
                self._api = await _open(self._kubeconfig, self._context)
                self._api.user_agent = self._user_agent
            return self._api


_METHODS = {"list": "GET", "get": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
_ERRORS: dict[int, type[ClientError]] = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}


async def _open(kubeconfig: str, context: str) -> Any:
    """Return the package's own client with the configuration as it is now.

    Raises:
        UnavailableError: there is no usable configuration.
    """
    from kubernetes.aio.client.api_client import ApiClient
    from kubernetes.aio.client.configuration import Configuration

    from gpulease.providers.kubernetes.connections import Transport

    config: Any = importlib.import_module("kubernetes.aio.config")
    settings = Configuration()
    try:
        if not kubeconfig and _in_cluster():
            config.load_incluster_config(settings)
        else:
            await config.load_kube_config(
                config_file=kubeconfig or None,
                context=context or None,
                client_configuration=settings,
                persist_config=False,
            )
    except (config.ConfigException, OSError, ValueError) as error:
        raise UnavailableError(f"there is no usable cluster configuration: {error}") from error
    settings.retries = None
    api = ApiClient(settings)
    api.rest_client = Transport(settings)
    return api


def _in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _selectors(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}


async def _text(response: aiohttp.ClientResponse) -> str:
    try:
        return await response.text()
    except _TRANSPORT as error:
        raise _silent(error) from error


def _object(text: str) -> Manifest:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnavailableError("the answer is not JSON: something else answers there") from error
    if not isinstance(found, dict):
        raise UnavailableError("the answer is no object: something else answers there")
    return found


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[WatchEvent]:
    lines = Lines()
    try:
        async for chunk in response.content.iter_any():
            for line in lines.feed(chunk):
                yield _event(_object(line))
    except _TRANSPORT as error:
        raise _silent(error) from error


def _event(found: Manifest) -> WatchEvent:
    kind, about = found.get("type"), found.get("object")
    if not isinstance(kind, str) or not isinstance(about, dict):
        raise UnavailableError("a message of a watch has no type or no object")
    if kind == "ERROR":
        raise _status(int(about.get("code") or 500), about)
    return WatchEvent(kind, about)


def _error(status: int, text: str, headers: Any) -> ClientError:
    try:
        said = _object(text)
    except UnavailableError:
        said = {}
    try:
        retry_after = float(headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0.0
    return _status(status, said, retry_after)


def _status(status: int, said: Manifest, retry_after: float = 0.0) -> ClientError:
    reason = str(said.get("reason") or "")
    message = str(said.get("message") or reason or f"HTTP status {status}")
    kind = _ERRORS.get(status)
    if kind is None:
        return UnavailableError(message, status=status, reason=reason, retry_after=retry_after)
    return kind(message, status=status, reason=reason)


def _silent(error: BaseException) -> UnavailableError:
    # The text of a transport's error may hold an address, never a token: tokens go in headers.
    return UnavailableError(f"the API server does not answer: {error or type(error).__name__}")


def _identity(status: Manifest, audience: str) -> TokenIdentity | None:
    if not status.get("authenticated") or audience not in (status.get("audiences") or []):
        return None
    user = status.get("user") or {}
    extra = user.get("extra") or {}

    def first(name: str) -> str:
        return str((extra.get(_EXTRA + name) or [""])[0])

    return TokenIdentity(
        username=str(user.get("username", "")),
        pod=first("pod-name"),
        pod_uid=first("pod-uid"),
        node=first("node-name"),
        groups=tuple(user.get("groups") or ()),
    )
