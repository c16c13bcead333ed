"""One connection to one API server: every call is bounded in time and made once, and each answer has one meaning."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.client.rest import RESTResponse
from kubernetes.config import load_incluster_config, load_kube_config

from activities.kubernetes.options import Options
from activities.ports import NotSent, Unclear, Unreadable

Object = dict[str, Any]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
FIELD_MANAGER = "medevac"
"""Under which the API server keeps which fields are ours."""
NEVER_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
FORBIDDEN_RETRY_S = 15.0
"""A missing right is a person's to give; until then it is asked for seldom."""
POLICY_RETRY_S = 5.0
"""A webhook that fails may be back soon, and an admission policy may change."""
LISTING = 4
_DENIED = re.compile(r"denied (?:the )?request")


class Forbidden(Unreadable):
    """Our account may not read this."""


class Expired(Unreadable):
    """The version to go on from is too old: everything must be read anew."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said, whatever it said."""

    code: int
    body: Object
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message") or f"status {self.code}")

    @property
    def details(self) -> Object:
        return self.body.get("details") or {}

    @property
    def causes(self) -> dict[str, str]:
        """What stands behind the answer: reason, and its own message."""
        causes = self.details.get("causes") or ()
        return {str(cause.get("reason", "")): str(cause.get("message", "")) for cause in causes}

    def error(self) -> NotSent | Unclear:
        """Of a write that was not accepted. Only what certainly had no effect may be made again as it is."""
        said = f"the API server says {self.code}: {self.message}"
        if self.code == 403:
            return NotSent(said, retry_after_s=self.retry_after_s or FORBIDDEN_RETRY_S)
        if self.code in (401, 409, 429):
            return NotSent(said, retry_after_s=self.retry_after_s)
        if self.code == 503 or "failed calling webhook" in self.message or _DENIED.search(self.message):
            return NotSent(said, retry_after_s=self.retry_after_s or POLICY_RETRY_S)
        if self.code < 500:
            return NotSent(said, final=True)
        # Its store may have written all the same ("etcdserver: request timed out" is a 500).
        return Unclear(said)


@dataclass(slots=True)
class Client:
    """Thread-safe: one for all activities of the process."""

    options: Options
    api: ApiClient = field(init=False)

    def __post_init__(self) -> None:
        configuration = Configuration()
        if self.options.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(self.options.kubeconfig) if self.options.kubeconfig else None,
                context=self.options.context,
                client_configuration=configuration,
                persist_config=False,
            )
        # Whether a call may be made again is ours to know: urllib3 would repeat a DELETE, and sleep on a Retry-After.
        configuration.retries = False
        configuration.connection_pool_maxsize = self.options.connections
        configuration.keep_alive = True
        self.api = ApiClient(configuration)
        self.api.user_agent = FIELD_MANAGER

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, path: str, query: Mapping[str, str] | None = None, *, factor: int = 1) -> Object | None:
        """None when it doesn't exist. Raises `Unreadable`, also as `Forbidden`."""
        try:
            answer = self._call("GET", path, query or {}, None, JSON, factor)
        except (NotSent, Unclear) as error:
            raise Unreadable(str(error)) from None
        if answer.code == 404:
            return None
        if not answer.ok:
            kind = Forbidden if answer.code == 403 else Unreadable
            raise kind(f"GET {path}: the API server says {answer.code}: {answer.message}")
        return answer.body

    def list(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Object]:
        """One thing after the other; what is not served at all (no such API) is empty. Raises `Unreadable`."""
        for page in self.pages(path, query):
            yield from page.get("items") or ()

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Object]:
        """All pages show the moment of the first, whose `resourceVersion` they carry."""
        asked = {**(query or {}), "limit": str(self.options.page)}
        while True:
            page = self.get(path, asked, factor=LISTING)
            if page is None:
                return
            yield page
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return
            asked["continue"] = more

    def watch(
        self,
        path: str,
        version: str,
        seconds: int,
        opened: Callable[[urllib3.BaseHTTPResponse], None],
        query: Mapping[str, str] | None = None,
    ) -> Iterator[Object]:
        """Changes since `version`, as they happen, until the server ends it. Raises `Unreadable`, also as `Expired`.

        `opened` gets the connection, so that another thread may end it.
        """
        asked = {
            "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds),
        }  # fmt: skip
        try:
            response = self._send(
                "GET", path, {**(query or {}), **asked}, None, JSON, seconds + self.options.read_timeout_s
            ).response
            opened(response)
            try:
                rest = b""
                for chunk in response.stream():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield _change(path, response.status, line)
                if response.status != 200:
                    yield _change(path, response.status, rest)
            finally:
                response.close()
        except (NotSent, Unclear) as error:
            raise Unreadable(str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise Unreadable(f"watching {path}: {_short(error)}") from None

    def text(self, path: str, query: Mapping[str, str]) -> bytes | None:
        """What isn't JSON, such as a log; None when it doesn't exist. Raises `Unreadable`, also as `Forbidden`."""
        try:
            response = self._send("GET", path, query, None, JSON, self.options.read_timeout_s * LISTING)
            raw = bytes(response.read())  # type: ignore[no-untyped-call]
        except (NotSent, Unclear) as error:
            raise Unreadable(str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise Unreadable(f"GET {path}: no answer: {_short(error)}") from None
        if response.status == 404:
            return None
        if response.status != 200:
            kind = Forbidden if response.status == 403 else Unreadable
            raise kind(f"GET {path}: the API server says {response.status}: {_object(raw).get('message', '')}")
        return raw

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, method: Method, path: str, body: Object, kind: str = JSON) -> Answer:
        """The answer, of whatever code. Raises `NotSent` or `Unclear` where there is none."""
        query = {} if method == "DELETE" else {"fieldManager": FIELD_MANAGER}
        return self._call(method, path, query, body, kind, 1)

    def _call(
        self, method: Method, path: str, query: Mapping[str, str], body: Object | str | None, kind: str, factor: int
    ) -> Answer:
        try:
            response = self._send(method, path, query, body, kind, self.options.read_timeout_s * factor)
            raw = response.read()  # type: ignore[no-untyped-call]
        except urllib3.exceptions.HTTPError as error:
            raise Unclear(f"{method} {path}: no answer: {_short(error)}") from None
        return Answer(response.status, _object(raw), _seconds(response.headers.get("Retry-After")))

    def _send(
        self, method: Method, path: str, query: Mapping[str, str], body: Object | str | None, kind: str, read_s: float
    ) -> RESTResponse:
        said = f"{method} {path}"
        try:
            request = self.api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={"Accept": JSON, "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
            )
        except Exception as error:  # credentials that can't be refreshed
            raise NotSent(f"{said}: no credentials: {type(error).__name__}: {error}") from None
        try:
            return self.api.call_api(*request, _request_timeout=(self.options.connect_timeout_s, read_s))
        except NEVER_SENT as error:
            raise NotSent(f"{said}: the API server can't be reached: {_short(error)}") from None
        except ApiException as error:  # TLS
            raise NotSent(f"{said}: {_short(error)}") from None
        except urllib3.exceptions.HTTPError as error:
            raise Unclear(f"{said}: no answer: {_short(error)}") from None

    def close(self) -> None:
        self.api.close()  # type: ignore[no-untyped-call]


def url(*parts: str) -> str:
    """A path whose every part is one segment, whatever stands in it."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _change(path: str, status: int, line: bytes) -> Object:
    """A watch tells of its own end as if it were a change."""
    said = _object(line)
    failed = said if status != 200 else said.get("object") or {} if said.get("type") == "ERROR" else None
    if failed is None:
        return said
    kind = Expired if failed.get("code", status) == 410 else Forbidden if status == 403 else Unreadable
    raise kind(f"watching {path}: the API server says {failed.get('code', status)}: {failed.get('message', '')}")


def _object(raw: bytes) -> Object:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": raw[:200].decode(errors="replace")}


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdigit() else None


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
