"""What the suites need to arrange at the far side of each ticket adapter."""

from __future__ import annotations

import email.policy
import json
import re
import sys
from datetime import UTC, datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any

import boto3

from activities.tickets.aws_support import AwsSupportTickets
from activities.tickets.aws_support import make as make_aws_support
from activities.tickets.command import make as make_command
from activities.tickets.jira import make as make_jira
from activities.tickets.mail import make as make_mail
from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration.tickets import desk
from tests.integration.tickets.far_json import Answer, Asked, FarJson
from tests.integration.tickets.far_mail import FarMail

PROVIDER = "ironworks"


class CommandRig:
    provider = PROVIDER

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # Alone, without what a site has installed, it starts in a tenth of the time.
        program = [sys.executable, "-I", "-S", str(Path(desk.__file__)), str(folder)]
        self.tickets = make_command("desk", {"command": program, "timeout_s": 30.0, **options})

    def pass_time(self) -> None:
        pass

    def trouble(self, trouble: Trouble) -> None:
        if trouble in (Trouble.TIMEOUT_BEFORE, Trouble.TIMEOUT_AFTER):
            options = self.tickets._options.model_copy(update={"timeout_s": 4.0})
            self.tickets._options = options
        (self.folder / "trouble-write").write_text(trouble.value)

    def unreadable(self) -> None:
        (self.folder / "trouble-read").write_text("unreadable")

    def denied(self) -> None:
        (self.folder / "trouble-read").write_text("denied")

    def all(self) -> dict[str, dict[str, Any]]:
        return {path.stem: json.loads(path.read_text()) for path in sorted(self.folder.glob("T-*.json"))}

    def opened(self) -> int:
        return len(self.all())

    def answer(self, id: str, text: str, author: str = "support") -> None:
        one = self.all()[id]
        desk.say(one, text, ours=False, author=author)
        (self.folder / f"{id}.json").write_text(json.dumps(one))

    def close_there(self, id: str) -> None:
        (self.folder / f"{id}.json").write_text(json.dumps({**self.all()[id], "open": False}))

    def comments(self, id: str) -> list[str]:
        return [said["text"] for said in self.all()[id]["said"] if said["ours"]]

    def closed(self, id: str) -> bool | None:
        return not self.all()[id]["open"]


class MailRig:
    provider = PROVIDER

    def __init__(self, far: FarMail, **options: Any) -> None:
        self.far = far
        self.tickets = make_mail("mail", far.options(**options))

    def pass_time(self) -> None:
        pass

    def trouble(self, trouble: Trouble) -> None:
        self.far.trouble = {Trouble.TIMEOUT_BEFORE: "before", Trouble.TIMEOUT_AFTER: "after"}.get(
            trouble, trouble.value
        )

    def unreadable(self) -> None:
        self.far.imap_down = True

    def opened(self) -> int:
        return len([one for one in self._letters() if "In-Reply-To" not in one])

    def answer(self, id: str, text: str) -> None:
        subject = next(str(one["Subject"]) for one in self._letters() if str(one["Message-ID"]) == f"<{id}>")
        self.far.deliver(text, f"AW: {subject}")

    def comments(self, id: str) -> list[str]:
        return [one.get_content() for one in self._letters() if one["In-Reply-To"] == f"<{id}>"]

    def closed(self, id: str) -> bool | None:
        return None

    def _letters(self) -> list[Any]:
        return [message_from_bytes(raw, policy=email.policy.default) for raw in self.far.letters]


class JiraRig:
    """As much of Jira as the adapter speaks with, in the shapes of its own reference."""

    provider = PROVIDER

    def __init__(self) -> None:
        self.issues: dict[str, dict[str, Any]] = {}
        self.lacks: set[str] = set()
        self.far = FarJson(self._answers, lambda asked: asked.method == "POST" and asked.path.endswith("/issue"))

    def __enter__(self) -> JiraRig:
        self.far.__enter__()
        given = {"url": self.far.url, "project": "OPS", "user": "fleet@us.example", "token": {"env": "JIRA_TOKEN"}}
        self.tickets = make_jira("jira", {**given, "timeout_s": 30.0, "fields": {"components": [{"name": "GPU"}]}})
        return self

    def __exit__(self, *_: object) -> None:
        self.far.__exit__()

    def pass_time(self) -> None:
        pass

    def trouble(self, trouble: Trouble) -> None:
        self.far.trouble = trouble

    def unreadable(self) -> None:
        self.far.unreadable = True

    def opened(self) -> int:
        return len(self.issues)

    def answer(self, id: str, text: str) -> None:
        self._comment(id, text, "them", "Support")

    def comments(self, id: str) -> list[str]:
        return [one["body"] for one in self.issues[id]["comments"] if one["author"]["accountId"] == "us"]

    def closed(self, id: str) -> bool | None:
        return bool(self.issues[id]["done"])

    def _comment(self, id: str, text: str, account: str, name: str) -> None:
        comments = self.issues[id]["comments"]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"
        author = {"accountId": account, "displayName": name}
        comments.append({"id": str(len(comments)), "body": text, "created": at, "author": author})

    def _answers(self, asked: Asked) -> Answer:
        path = asked.path.removeprefix("/rest/api/2/")
        if path == "myself":
            return 200, {"accountId": "us"}
        if path == "mypermissions":
            wanted = asked.query["permissions"].split(",")
            return 200, {"permissions": {one: {"havePermission": one not in self.lacks} for one in wanted}}
        if path == "search/jql":
            label = re.search(r'project = "OPS" AND labels = "(\S+)"', asked.query["jql"])
            assert label
            found = [key for key, one in self.issues.items() if label[1] in one["fields"]["labels"]]
            return 200, {"issues": [{"key": key} for key in found]}
        if path == "issue":
            key = f"OPS-{len(self.issues) + 1}"
            self.issues[key] = {**asked.body, "comments": [], "done": False}
            return 201, {"id": "1", "key": key}
        _, id, *rest = path.split("/")
        issue = self.issues[id]
        match asked.method, rest:
            case "GET", ["properties", name]:
                held = {one["key"]: one["value"] for one in issue["properties"]}
                return 200, {"key": name, "value": held[name]}
            case "GET", ["comment"]:
                assert asked.query["orderBy"] == "-created"
                return 200, {"comments": list(reversed(issue["comments"]))}
            case "POST", ["comment"]:
                self._comment(id, asked.body["body"], "us", "Fleet")
                return 201, {"id": "1"}
            case "GET", ["transitions"]:
                ends = [("11", "indeterminate"), ("31", "done")]
                return 200, {"transitions": [{"id": n, "to": {"statusCategory": {"key": key}}} for n, key in ends]}
            case "POST", ["transitions"]:
                issue["done"] = asked.body["transition"]["id"] == "31"
                return 204, {}
            case _:
                category = "done" if issue["done"] else "new"
                return 200, {"fields": {"status": {"statusCategory": {"key": category}}}}


class AwsRig:
    """moto's cases; their correspondence and their end, which moto lacks, are kept here."""

    provider = "aws"

    def __init__(self, moto: str) -> None:
        self.moto = boto3.client("support", region_name="us-east-1", endpoint_url=moto)
        self.letters: dict[str, list[dict[str, str]]] = {}
        self.far = FarJson(self._answers, lambda asked: _api(asked) == "CreateCase", self._refusal)
        self.no_plan = False
        self.resolved: set[str] = set()

    def __enter__(self) -> AwsRig:
        self.far.__enter__()
        self.tickets: AwsSupportTickets = make_aws_support("support", {"endpoint": self.far.url, "timeout_s": 30.0})
        self.tickets._access.options = self.tickets._access.options.model_copy(update={"share": 1.0})
        return self

    def __exit__(self, *_: object) -> None:
        self.far.__exit__()

    def pass_time(self) -> None:
        pass

    def trouble(self, trouble: Trouble) -> None:
        self.far.trouble = trouble

    def unreadable(self) -> None:
        self.far.unreadable = True

    def opened(self) -> int:
        return len(self.letters)

    def answer(self, id: str, text: str) -> None:
        self._letter(id, text, "Amazon Web Services")

    def comments(self, id: str) -> list[str]:
        return [one["body"] for one in self.letters[id][1:] if one["submittedBy"] == "fleet@us.example"]

    def closed(self, id: str) -> bool | None:
        return id in self.resolved

    def _letter(self, id: str, text: str, author: str) -> None:
        letters = self.letters.setdefault(id, [])
        at = f"2026-03-01T12:{len(letters):02}:00.000Z"
        letters.append({"caseId": id, "body": text, "submittedBy": author, "timeCreated": at})

    def _refusal(self, trouble: Trouble) -> tuple[int, dict[str, str], Any]:
        code = "ThrottlingException" if trouble is Trouble.THROTTLE else "CaseCreationLimitExceeded"
        return 400, {"Retry-After": f"{RETRY_AFTER_S:.0f}"}, {"__type": code, "message": "said by a test"}

    def _answers(self, asked: Asked) -> Answer:
        api, given = _api(asked), asked.body or {}
        if self.no_plan:
            return 400, {"__type": "SubscriptionRequiredException", "message": "needs a plan"}
        if api == "DescribeSeverityLevels":
            return 200, {"severityLevels": [{"code": code, "name": code} for code in ("low", "normal", "high")]}
        if api == "DescribeCommunications":
            return 200, {"communications": list(reversed(self.letters[given["caseId"]]))}
        if api == "AddCommunicationToCase":
            self._letter(given["caseId"], given["communicationBody"], "fleet@us.example")
            return 200, {"result": True}
        method = {"CreateCase": "create_case", "DescribeCases": "describe_cases", "ResolveCase": "resolve_case"}[api]
        answer = getattr(self.moto, method)(**given)
        answer.pop("ResponseMetadata")
        if api == "ResolveCase":
            self.resolved.add(given["caseId"])
        for case in answer.get("cases", ()):
            # moto's own goes from state to state by being looked at.
            case["status"] = "resolved" if case["caseId"] in self.resolved else "opened"
        if api == "CreateCase":
            self._letter(answer["caseId"], given["communicationBody"], "fleet@us.example")
        return 200, answer


def _api(asked: Asked) -> str:
    return asked.headers["x-amz-target"].rpartition(".")[2]
