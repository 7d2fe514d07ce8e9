"""The port carried out by the official ``kubernetes`` package's asyncio side.

Configuration (kubeconfig or in-cluster), renewal of tokens, time-outs, and the translation of
answers into the port's errors.  Only the package's transport is used, over connections that have
ended when it has; its model classes change with every release of Kubernetes.  A transport of our
own over aiohttp would not be shorter: it would read certificates, proxies and renewed tokens
again.  Nothing is tried a second time but a call whose token was too old: callers know better what
may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from gpulease.providers.kubernetes.api.answers import (
    TRANSPORT,
    error_of,
    events_of,
    identity_of,
    no_answer,
    object_of,
    text_of,
)
from gpulease.providers.kubernetes.api.client import (
    TOKEN_REVIEWS,
    ClientError,
    Keep,
    Listing,
    Manifest,
    Resource,
    TokenIdentity,
    UnavailableError,
    WatchEvent,
    whole,
)
from gpulease.system.connector import Connector


class Transport(RESTClientObject):
    """The package's transport over connections that end with it."""

    _connector: Connector | None = None

    def _create_connector(self) -> Connector:
        self._connector = Connector(limit=self.maxsize, ssl=self.ssl_context)
        return self._connector

    async def close(self) -> None:
        """End the session and every connection it had."""
        await super().close()
        if self._connector is not None:
            await self._connector.end()


#: Objects of one page of a list.
PAGE = 100
#: Seconds that an ordinary call may take.
CALL_SECONDS = 30.0
#: Seconds without a word after which a watch that should have ended is given up.
_SILENT = 15.0

#: On the message of a streamed list after which everything was sent.
_ALL_SENT = "k8s.io/initial-events-end"
log = logging.getLogger(__name__)

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
        self._streams = True  # whether lists are asked for as streams

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
        streamed: bool = False,
    ) -> Listing:
        """Return every object of a collection; see the port."""
        if streamed and self._streams:
            try:
                return await self._stream_all(resource, namespace, _selectors(labels, fields), keep)
            except ClientError as error:
                if not error.status:
                    raise  # nobody answered
                self._streams = False
                log.info("lists are asked for in pages from now on: %s", error.message)
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

    async def _stream_all(
        self, resource: Resource, namespace: str, selectors: dict[str, str], keep: Keep
    ) -> Listing:
        """List by a watch that begins with everything that is there, object by object.

        The API server answers from its cache, and nobody ever holds a page whole.  Servers of
        Kubernetes 1.32 and from 1.34 on take it by default, if their etcd is not old.
        https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists
        """
        query = {
            **selectors,
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
        }
        events = self._events(resource, namespace, query, CALL_SECONDS)
        async with contextlib.aclosing(events):
            await anext(events)  # it was taken
            try:
                return await _whole_list(events, keep)
            except UnavailableError as error:
                # Some servers begin and never end, as one whose etcd is old: never again.
                said = f"a streamed list of {resource.plural} did not end: {error.message}"
                raise UnavailableError(said, status=error.status or 504) from error

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
        events = self._events(resource, namespace, query, seconds + _SILENT)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def _events(
        self, resource: Resource, namespace: str, query: dict[str, str], silence: float
    ) -> AsyncGenerator[WatchEvent]:
        """Yield a watch's messages; ``silence`` is how long (seconds) none may come."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS, sock_read=silence)
        began = time.monotonic()
        response = await self._send("GET", resource.path(namespace), query, None, limit)
        try:
            self._observe("watch", resource.plural, response.status, time.monotonic() - began)
            if response.status >= 400:
                raise error_of(response.status, await text_of(response), response.headers)
            yield WatchEvent("OPENED")
            async for event in events_of(response):
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
        return identity_of(found.get("status") or {}, audience)

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
            text = await text_of(response)
        finally:
            self._observe(verb, resource.plural, status, time.monotonic() - began)
        if status >= 400:
            raise error_of(status, text, response.headers)
        return object_of(text)

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Manifest | None,
        limit: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send once; when the token was too old, read the configuration again and resend."""
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
        except TRANSPORT as error:
            raise no_answer(error) from error
        return answer.response  # type: ignore[no-any-return]

    async def _opened(self) -> Any:
        async with self._opening:
            if self._api is None:
                self._api = await _open(self._kubeconfig, self._context)
                self._api.user_agent = self._user_agent
            return self._api


_METHODS = {"list": "GET", "get": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


async def _whole_list(events: AsyncIterator[WatchEvent], keep: Keep) -> Listing:
    """Take what a watch sends first, up to the message that says that it was all.

    Raises:
        UnavailableError: that never came.
    """
    found: dict[tuple[str, str], Manifest | None] = {}
    async for event in events:
        meta = event.object.get("metadata") or {}
        if event.kind != "BOOKMARK":
            key = str(meta.get("namespace", "")), str(meta.get("name", ""))
            found[key] = None if event.kind == "DELETED" else keep(event.object)
        elif (meta.get("annotations") or {}).get(_ALL_SENT) == "true":
            return Listing([each for each in found.values() if each is not None], event.version)
    raise UnavailableError("it broke off")


async def _open(kubeconfig: str, context: str) -> Any:
    """Return the package's own client with the configuration as it is now.

    Raises:
        UnavailableError: there is no usable configuration.
    """
    from kubernetes.aio.client.api_client import ApiClient
    from kubernetes.aio.client.configuration import Configuration

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
    _take_proxy(settings)
    api = ApiClient(settings)
    api.rest_client = Transport(settings)
    return api


def _take_proxy(settings: Any) -> None:
    """Let the environment name the proxy once; aiohttp asks for it, and ~/.netrc, at each request.

    That took a twentieth of the service's time while leases start in numbers.
    """
    server = urlsplit(settings.host)
    if not settings.proxy and not proxy_bypass(server.netloc):
        settings.proxy = getproxies().get(server.scheme)
    settings.client_session_kwargs = {"trust_env": False}


def _in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _selectors(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in query.items() if value}
