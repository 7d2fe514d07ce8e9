"""A small synchronous client of the API server for tests: dicts in, dicts out.

It is not gpulease's own client, so that a test looks at the cluster independently of it.
"""

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused; `status` is HTTP's, `reason` and `message` the server's."""

    def __init__(self, status: int, body: Object) -> None:
        self.status = status
        self.reason = body.get("reason", "")
        self.message = body.get("message", "")
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """Requests of one identity: a kubeconfig's client certificate, or a bearer token."""

    def __init__(self, kubeconfig: Path, token: str = "", as_user: str = "") -> None:
        """Read a kubeconfig; with `token` only its server is used, `as_user` impersonates."""
        document = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster = document["clusters"][0]["cluster"]
        address = urlsplit(cluster["server"])
        assert address.hostname
        self.kubeconfig = kubeconfig
        self.token = token
        self._host, self._port = address.hostname, address.port
        self.url = f"https://{address.netloc}"
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode("ascii")
        self.tls = ssl.create_default_context(cadata=ca)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        else:
            _load_pair(self.tls, document["users"][0]["user"])
        if as_user:
            self._headers["Impersonate-User"] = as_user

    def as_account(self, namespace: str, name: str) -> "Api":
        """Return a client with a new token of this service account."""
        return Api(self.kubeconfig, token=self.new_token(namespace, name))

    def new_token(
        self, namespace: str, name: str, audience: str = "", bound_to: Object | None = None
    ) -> str:
        """Return a new token of a service account, bound to an object if one is given."""
        path, body = token_request(namespace, name, audience, bound_to)
        token: str = self.request("POST", path, body)["status"]["token"]
        return token

    def request(
        self, method: str, path: str, body: Object | None = None, kind: str = "", **query: str
    ) -> Object:
        """Send one request and return the answer; raises ApiError, or OSError without a server.

        `kind` is the patch's content type: `merge` or `strategic-merge`.
        """
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=30, context=self.tls
        )
        headers = dict(self._headers)
        if method == "PATCH":
            headers["Content-Type"] = f"application/{kind or 'merge'}-patch+json"
        if query:
            path = f"{path}?{urlencode(query)}"
        try:
            content = json.dumps(body) if body is not None else None
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:  # it ended in the middle of its answer
            raise ConnectionError(f"the API server broke off: {error!r}") from error
        finally:
            connection.close()
        if "json" in answer.headers.get_content_type():
            document: Object = json.loads(text)
        else:
            document = {"message": text.decode("utf-8", "replace")}
        if answer.status >= 400:
            raise ApiError(answer.status, document)
        return document

    def create(self, document: Object, **query: str) -> Object:
        """Create an object where its own kind and namespace say."""
        return self.request("POST", path_of(document, collection=True), document, "", **query)

    def ensure(self, document: Object) -> None:
        """Create an object unless it is there."""
        try:
            self.create(document)
        except ApiError as error:
            if error.status != 409:
                raise

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def items(self, path: str, **query: str) -> list[Object]:
        """Return a list's objects."""
        found: list[Object] = self.request("GET", path, None, "", **query)["items"]
        return found

    def patch(self, path: str, body: Object, kind: str = "") -> Object:
        return self.request("PATCH", path, body, kind)

    def delete(self, path: str, body: Object | None = None) -> Object:
        return self.request("DELETE", path, body)

    def remove(self, path: str, body: Object | None = None) -> None:
        """Delete an object if it is there."""
        try:
            self.delete(path, body)
        except ApiError as error:
            if error.status != 404:
                raise

    def pod(self, namespace: str, name: str) -> Object:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def find(self, path: str) -> Object | None:
        """Return an object, or None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def logs(self, namespace: str, name: str, **query: str) -> str:
        """Return what a pod wrote."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        return str(self.request("GET", path, None, "", **query).get("message", ""))


def token_request(
    namespace: str, name: str, audience: str = "", bound_to: Object | None = None
) -> tuple[str, Object]:
    """Return where and how a token of a service account is asked for."""
    spec: Object = {"expirationSeconds": 7200}
    if audience:
        spec["audiences"] = [audience]
    if bound_to is not None:
        metadata = bound_to["metadata"]
        spec["boundObjectRef"] = {
            "apiVersion": bound_to["apiVersion"],
            "kind": bound_to["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def path_of(document: Object, *, collection: bool = False) -> str:
    """Return an object's address, or its collection's."""
    version, kind = document["apiVersion"], document["kind"]
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    if namespace:
        base += f"/namespaces/{namespace}"
    path = f"{base}/{plural(kind)}"
    return path if collection else f"{path}/{document['metadata']['name']}"


def plural(kind: str) -> str:
    """Return a kind's name in addresses."""
    word = kind.lower()
    if word.endswith("y"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith("s") else "s")


def _load_pair(tls: ssl.SSLContext, user: Object) -> None:
    with tempfile.NamedTemporaryFile() as pair:
        for field in ("client-certificate-data", "client-key-data"):
            pair.write(base64.b64decode(user[field]))
        pair.flush()
        tls.load_cert_chain(pair.name)
