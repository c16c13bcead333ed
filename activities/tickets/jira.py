"""Jira, Cloud or Data Center, by its REST API version 2, whose texts are plain on both.

The key is an entity property of the issue. JQL finds only properties that an app has registered for its index, so the
key's digest is a label besides; the property then tells that the label is no accident.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import Field

from activities.failures import redact
from activities.ports import NotAllowed, NotSent, Said, Thread, TicketRef, Unclear, Unreadable
from activities.secret import SafeUrl, Secret
from activities.tickets.options import TicketOptions, short

PROPERTY = "medevac"
THROTTLED_S = 30.0
DENIED = (401, 403)


class Options(TicketOptions):
    url: SafeUrl
    project: str = Field(pattern=r"^[A-Z][A-Z0-9_]{1,99}$")
    issue_type: str = "Task"
    user: str = ""
    """E-mail address of the account at Jira Cloud, with its API token; empty: the token is a personal access token."""
    token: Secret
    cloud: bool = True
    """Cloud searches at `search/jql`, Data Center at `search`."""
    fields: dict[str, Any] = {}
    """More fields of new issues, as the API takes them: `{components: [{name: GPU}]}`."""


class JiraTickets:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.share = options.share
        self._options = options
        self._http = httpx.Client(
            base_url=f"{options.url.rstrip('/')}/rest/api/2/",
            timeout=httpx.Timeout(options.timeout_s, connect=min(3.0, options.timeout_s)),
            follow_redirects=False,
        )
        self._me = ""

    def find(self, key: str) -> TicketRef | None:
        jql = f'project = "{self._options.project}" AND labels = "{label(key)}"'
        where = "search/jql" if self._options.cloud else "search"
        found = self._read("GET", where, params={"jql": jql, "fields": "status", "maxResults": 10})
        for issue in found.get("issues", ()):
            held = self._read("GET", f"issue/{quote(str(issue['key']))}/properties/{PROPERTY}", missing_ok=True)
            value = held.get("value")
            if isinstance(value, Mapping) and value.get("key") == key:
                return self._ref(str(issue["key"]))
        return None

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        options = self._options
        fields = {
            **options.fields,
            "project": {"key": options.project},
            "issuetype": {"name": options.issue_type},
            "summary": title[:250],
            "description": body,
            "labels": ["medevac", label(key)],
        }
        properties = [{"key": PROPERTY, "value": {"key": key}}]
        made = self._write("POST", "issue", {"fields": fields, "properties": properties})
        if not made.get("key"):
            raise Unclear(f"{self.name}: Jira said done and named no issue")
        return self._ref(str(made["key"]))

    def thread(self, ref: TicketRef, key: str) -> Thread:
        me = self._myself()
        issue = self._read("GET", f"issue/{quote(ref.id)}", params={"fields": "status"})
        category = issue.get("fields", {}).get("status", {}).get("statusCategory", {}).get("key")
        newest = {"orderBy": "-created", "maxResults": 100}
        comments = self._read("GET", f"issue/{quote(ref.id)}/comment", params=newest).get("comments", ())
        said = tuple(self._said(one, me) for one in reversed(comments))
        return Thread(open=category != "done", said=said)

    def comment(self, ref: TicketRef, key: str, token: str, text: str) -> None:
        self._write("POST", f"issue/{quote(ref.id)}/comment", {"body": f"{text}\n\n[{token}]"})

    def close(self, ref: TicketRef, key: str) -> None:
        try:
            offered = self._read("GET", f"issue/{quote(ref.id)}/transitions").get("transitions", ())
        except NotAllowed as error:
            raise NotSent(str(error), final=True) from None
        except Unreadable as error:
            raise NotSent(str(error)) from None
        ends = [one for one in offered if one.get("to", {}).get("statusCategory", {}).get("key") == "done"]
        if not ends:
            why = f"issue {ref.id} offers no transition to a done status; close it by hand"
            raise NotSent(f"{self.name}: {why}", final=True)
        self._write("POST", f"issue/{quote(ref.id)}/transitions", {"transition": {"id": str(ends[0]["id"])}})

    def missing_rights(self) -> list[str]:
        wanted = ("BROWSE_PROJECTS", "CREATE_ISSUES", "ADD_COMMENTS", "TRANSITION_ISSUES", "EDIT_ISSUES")
        params = {"projectKey": self._options.project, "permissions": ",".join(wanted)}
        held = self._read("GET", "mypermissions", params=params).get("permissions", {})
        lacks = [one for one in wanted if not held.get(one, {}).get("havePermission")]
        return [f"{one} in project {self._options.project}" for one in lacks]

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Raises `NotAllowed`, and httpx's own errors."""
        token = self._options.token.value()
        headers, auth = {"Accept": "application/json"}, None
        if self._options.user:
            auth = httpx.BasicAuth(self._options.user, token)
        else:
            headers["Authorization"] = f"Bearer {token}"
        return self._http.request(method, path, headers=headers, auth=auth, **given)

    def _read(self, method: str, path: str, missing_ok: bool = False, **given: Any) -> Mapping[str, Any]:
        try:
            answer = self._call(method, path, **given)
        except httpx.HTTPError as error:
            raise Unreadable(f"{self.name}: {short(error)}") from None
        if answer.status_code == 404 and missing_ok:
            return {}
        if answer.status_code in DENIED:
            raise NotAllowed(f"{self.name}: Jira refuses the account (HTTP {answer.status_code}): {_said_of(answer)}")
        if answer.status_code >= 300:
            final = 400 <= answer.status_code < 500 and answer.status_code not in (408, 425, 429)
            kind = NotAllowed if final else Unreadable
            raise kind(f"{self.name}: HTTP {answer.status_code} of {path.split('?')[0]}: {_said_of(answer)}")
        return _object(answer)

    def _write(self, method: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = self._call(method, path, json=body)
        except NotAllowed as error:
            raise NotSent(f"{self.name}: {error}", final=True) from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(f"{self.name}: {short(error)}") from None
        except httpx.HTTPError as error:
            raise Unclear(f"{self.name}: {short(error)}") from None
        status = answer.status_code
        if status < 300:
            try:
                return _object(answer)
            except Unreadable as error:
                raise Unclear(f"{self.name}: {error}") from None
        said = f"{self.name}: HTTP {status}: {_said_of(answer)}"
        if status == 429 or (status == 503 and "retry-after" in answer.headers):
            raise NotSent(said, retry_after_s=_wish(answer) or THROTTLED_S)
        if status >= 500 or status in (408, 425):
            raise Unclear(said)
        raise NotSent(said, final=True)

    def _myself(self) -> str:
        if not self._me:
            me = self._read("GET", "myself")
            self._me = str(me.get("accountId") or me.get("name") or "")
        return self._me

    def _said(self, comment: Mapping[str, Any], me: str) -> Said:
        author = comment.get("author") or {}
        who = str(author.get("accountId") or author.get("name") or "")
        return Said(
            id=str(comment["id"]),
            at=datetime.strptime(str(comment["created"]), "%Y-%m-%dT%H:%M:%S.%f%z"),
            author=str(author.get("displayName") or who)[:100],
            text=str(comment.get("body") or ""),
            ours=bool(me) and who == me,
        )

    def _ref(self, issue: str) -> TicketRef:
        return TicketRef(system=self.name, id=issue, url=f"{self._options.url.rstrip('/')}/browse/{quote(issue)}")


def label(key: str) -> str:
    return f"medevac-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _object(answer: httpx.Response) -> Mapping[str, Any]:
    if not answer.content:
        return {}
    try:
        found = answer.json()
    except ValueError:
        raise Unreadable("Jira's answer is no JSON; is its `url` right?") from None
    return found if isinstance(found, dict) else {}


def _said_of(answer: httpx.Response) -> str:
    try:
        body = answer.json()
        said = "; ".join([*body.get("errorMessages", ()), *(f"{k}: {v}" for k, v in body.get("errors", {}).items())])
    except (ValueError, AttributeError, TypeError):
        said = ""
    return redact(said or answer.reason_phrase, 300)


def _wish(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return None


def make(name: str, options: dict[str, Any]) -> JiraTickets:
    return JiraTickets(name, Options.model_validate(options))
