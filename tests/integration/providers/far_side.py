"""AWS's far side: moto's server, and a thin proxy before it that counts, and makes calls go wrong in chosen ways.

What moto lacks is added there: launches that know their token, root volumes that can be replaced, lifecycle actions.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from moto.iam.access_control import IAMPolicy, PermissionResult

from tests.contracts.rigs import RETRY_AFTER_S, Trouble
from tests.integration.served import Answer, Handler, Served

REGION = "us-east-1"
EC2_XML = "http://ec2.amazonaws.com/doc/2016-11-15/"
LIES = {
    "RebootInstances": "<return>true</return>",
    "StopInstances": "<instancesSet/>",
    "TerminateInstances": "<instancesSet/>",
    "RunInstances": "<instancesSet><item><instanceId>i-0123456789abcdef0</instanceId>"
    "<instanceState><code>0</code><name>pending</name></instanceState></item></instancesSet>",
    "CreateReplaceRootVolumeTask": "<replaceRootVolumeTask><replaceRootVolumeTaskId>rrvt-1</replaceRootVolumeTaskId>"
    "</replaceRootVolumeTask>",
    "TerminateInstanceInAutoScalingGroup": "<TerminateInstanceInAutoScalingGroupResult><Activity>"
    "<ActivityId>a-1</ActivityId></Activity></TerminateInstanceInAutoScalingGroupResult>",
}


@dataclass(frozen=True)
class Call:
    api: str
    given: dict[str, str]
    pid: str = ""

    @property
    def ids(self) -> list[str]:
        return [value for key, value in self.given.items() if re.fullmatch(r"InstanceIds?(\.\w*\.?\d+)?", key)]


@dataclass
class Script:
    api: str
    trouble: Trouble | Callable[[Call, str], bool]
    """Or what is done at the points `before` and `after` of the call; True = the connection ends there."""
    times: int = 1
    code: str = "OperationNotPermitted"


@dataclass
class FarSide(Served):
    moto: str
    calls: list[Call] = field(default_factory=list)
    """All that arrived."""
    effects: list[Call] = field(default_factory=list)
    """Those that moto carried out and that changed something."""
    scripts: list[Script] = field(default_factory=list)
    impaired: set[str] = field(default_factory=set)
    """Instances whose status checks fail."""
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    """API: size and refill per second of its bucket."""
    throttled: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, str] = field(default_factory=dict)
    """Root volume replacements by token: their instance."""
    failed_tasks: set[str] = field(default_factory=set)
    heard: Callable[[Call], object] = lambda call: None
    delay_s: float = 0.0
    rewrite: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """API: what is said otherwise in its answers."""
    said: str = ""
    """The message of errors."""
    _tokens: dict[str, Answer] = field(default_factory=dict)
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def respond(self, handler: Handler, body: bytes) -> Answer | None:
        target = urlsplit(self.moto)
        call = _call(handler.path, body)
        return self.answer(call, lambda: handler.forward(target.hostname, target.port, body))

    def direct(self, service: str, region: str = REGION, **credentials: str) -> Any:
        """Past the proxy: what others do in the account."""
        return _client(service, region, self.moto, *sorted(credentials.items()))

    def script(self, api: str, trouble: Trouble | Callable[[Call, str], bool], times: int = 1, code: str = "") -> None:
        with self._lock:
            self.scripts.append(Script(api, trouble, times, code or "OperationNotPermitted"))

    def count(self, api: str) -> int:
        with self._lock:
            return sum(call.api == api for call in self.calls)

    def done(self, *apis: str) -> list[Call]:
        with self._lock:
            return [call for call in self.effects if call.api in apis]

    # -- one call ----------------------------------------------------------------------------------------------

    def answer(self, call: Call, forward: Callable[[], Answer]) -> Answer | None:
        """None = the connection is dropped."""
        if self.delay_s:
            time.sleep(self.delay_s)
        with self._lock:
            self.calls.append(call)
            script = next((one for one in self.scripts if one.times and one.api == call.api), None)
            if script:
                script.times -= 1
        how = script.trouble if script else None
        if how is Trouble.TIMEOUT_BEFORE or (callable(how) and how(call, "before")):
            return None
        if how is Trouble.THROTTLE:
            return error(call, 503, "RequestLimitExceeded", {"Retry-After": f"{RETRY_AFTER_S:.0f}"})
        if how is Trouble.REFUSE and script:
            return error(call, 500 if script.code.startswith("Internal") else 400, script.code, said=self.said)
        if not self._within_limit(call.api):
            return error(call, 503, "RequestLimitExceeded")
        if how is Trouble.LIE:
            return lie(call)
        given = self._own(call, forward)
        dropped = how is Trouble.TIMEOUT_AFTER or (callable(how) and how(call, "after"))
        return None if dropped else given

    def _own(self, call: Call, forward: Callable[[], Answer]) -> Answer:
        token = call.given.get("ClientToken", "")
        with self._lock:
            if call.api == "RunInstances" and token in self._tokens:
                return self._tokens[token]
            match call.api:
                case "CreateReplaceRootVolumeTask" | "ModifyInstanceEventStartTime" if "DryRun" in call.given:
                    return error(call, 412, "DryRunOperation")
                case "CreateReplaceRootVolumeTask":
                    given = self._replace_root(call)
                case "DescribeReplaceRootVolumeTasks":
                    return self._describe_tasks(call)
                case "SimulatePrincipalPolicy":
                    return self._simulate(call)
                case "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat":
                    given = ok(call, f"<{call.api}Result/>")
                case _:
                    given = forward()
            status, headers, body = given
            if call.api in self.rewrite:
                return status, headers, body.replace(*self.rewrite[call.api])
            if call.api == "DescribeInstanceStatus":
                return status, headers, self._with_impaired(body)
            if status < 300 and self._changed(call, body):
                self.effects.append(call)
                self.heard(call)
                if call.api == "RunInstances":
                    self._tokens[token] = given
            return given

    def _changed(self, call: Call, body: bytes) -> bool:
        if call.api.startswith(("Describe", "Get", "Assume")):
            return False
        if call.api == "TerminateInstances":
            before = re.findall(rb"<previousState>.*?<name>(\S+?)</name>.*?</previousState>", body, re.DOTALL)
            return any(state not in (b"terminated", b"shutting-down") for state in before)
        return True

    def _replace_root(self, call: Call) -> Answer:
        id, token = call.given["InstanceId"], call.given["ClientToken"]
        if token not in self.tasks:
            self.tasks[token] = id
            ec2 = self.direct("ec2")
            instance = ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"][0]
            root = instance["RootDeviceName"]
            old = next(d["Ebs"]["VolumeId"] for d in instance["BlockDeviceMappings"] if d["DeviceName"] == root)
            zone = instance["Placement"]["AvailabilityZone"]
            new = ec2.create_volume(AvailabilityZone=zone, Size=8)["VolumeId"]
            ec2.detach_volume(VolumeId=old, InstanceId=id, Device=root)
            ec2.attach_volume(VolumeId=new, InstanceId=id, Device=root)
        return ok(call, f"<replaceRootVolumeTask><replaceRootVolumeTaskId>rrvt-{token[:8]}</replaceRootVolumeTaskId>"
                  f"<instanceId>{id}</instanceId><taskState>pending</taskState></replaceRootVolumeTask>")  # fmt: skip

    def _describe_tasks(self, call: Call) -> Answer:
        wanted = call.given.get("Filter.1.Value.1", "")
        items = "".join(
            f"<item><replaceRootVolumeTaskId>rrvt-{token[:8]}</replaceRootVolumeTaskId><instanceId>{id}</instanceId>"
            f"<taskState>{'failed' if id in self.failed_tasks else 'in-progress'}</taskState></item>"
            for token, id in self.tasks.items()
            if id == wanted
        )
        return ok(call, f"<replaceRootVolumeTaskSet>{items}</replaceRootVolumeTaskSet>")

    def _simulate(self, call: Call) -> Answer:
        """By the role's or user's own policies in moto, as moto itself would judge them."""
        iam, kind = self.direct("iam"), call.given["PolicySourceArn"].split(":")[5].partition("/")[0]
        name = call.given["PolicySourceArn"].rpartition("/")[2]
        arns = {f"{kind.title()}Name": name}
        try:
            held = getattr(iam, f"get_{kind}")(**arns)[kind.title()]["Arn"]
        except iam.exceptions.NoSuchEntityException:
            held = ""
        if held != call.given["PolicySourceArn"]:
            return error(call, 404, "NoSuchEntity")
        documents = [
            getattr(iam, f"get_{kind}_policy")(PolicyName=one, **arns)["PolicyDocument"]
            for one in getattr(iam, f"list_{kind}_policies")(**arns)["PolicyNames"]
        ]
        policies = [IAMPolicy(json.dumps(document)) for document in documents]
        actions = [value for key, value in sorted(call.given.items()) if key.startswith("ActionNames.")]
        resource = call.given.get("ResourceArns.member.1", "*")
        rows = "".join(self._judged(policies, documents, action, resource) for action in actions)
        inner = f"<IsTruncated>false</IsTruncated><EvaluationResults>{rows}</EvaluationResults>"
        return ok(call, f"<{call.api}Result>{inner}</{call.api}Result>")

    @staticmethod
    def _judged(policies: list[IAMPolicy], documents: list[Any], action: str, resource: str) -> str:
        allowed = any(one.is_action_permitted(action, resource) is PermissionResult.PERMITTED for one in policies)
        # moto takes conditions for met; IAM names what it would have to know.
        keys = sorted({
            key
            for document in documents
            for statement in document["Statement"]
            for operator in statement.get("Condition", {}).values()
            for key in operator
        })  # fmt: skip
        missing = "".join(f"<member>{key}</member>" for key in keys)
        decision = "allowed" if allowed and not keys else "implicitDeny"
        return (
            f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
            f"<EvalDecision>{decision}</EvalDecision><MissingContextValues>{missing}</MissingContextValues></member>"
        )

    def _with_impaired(self, body: bytes) -> bytes:
        def one(item: re.Match[str]) -> str:
            ill = any(f"<instanceId>{id}</instanceId>" in item[0] for id in self.impaired)
            return item[0].replace("<status>ok</status>", "<status>impaired</status>") if ill else item[0]

        return re.sub(r"<item><availabilityZone>.*?</systemStatus></item>", one, body.decode()).encode()

    def _within_limit(self, api: str) -> bool:
        if api not in self.limits:
            return True
        size, per_s = self.limits[api]
        with self._lock:
            now = time.monotonic()
            level, at = self._levels.get(api, (size, now))
            level = min(size, level + (now - at) * per_s)
            fine = level >= 1
            self._levels[api] = (level - 1 if fine else level, now)
            if not fine:
                self.throttled[api] += 1
            return fine


@functools.cache
def _client(service: str, region: str, endpoint: str, *credentials: tuple[str, str]) -> Any:
    return boto3.client(service, region_name=region, endpoint_url=endpoint, **dict(credentials))


def ok(call: Call, inner: str) -> Answer:
    return (
        200,
        {"Content-Type": "text/xml"},
        f'<{call.api}Response xmlns="{EC2_XML}">{inner}</{call.api}Response>'.encode(),
    )


def lie(call: Call) -> Answer:
    if call.api == "UpdateNodegroupConfig":
        return 200, {"Content-Type": "application/json"}, b'{"update": {"id": "u-1"}}'
    return ok(call, LIES[call.api])


NOT_EC2 = ("AssumeRole", "GetCallerIdentity", "DescribeLifecycleHooks", "SimulatePrincipalPolicy")


def error(call: Call, status: int, code: str, headers: dict[str, str] | None = None, said: str = "") -> Answer:
    """In EC2's own form, in that of the other query APIs, or in that of EKS."""
    said = said or f"{code} said by a test"
    if call.api.endswith("Nodegroup") or call.api == "UpdateNodegroupConfig":
        return status, {"x-amzn-ErrorType": code, **(headers or {})}, json.dumps({"message": said}).encode()
    inner = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>"
    ec2 = f"<Response><Errors>{inner}</Errors><RequestID>r-1</RequestID></Response>"
    other = f"<ErrorResponse>{inner}<RequestId>r-1</RequestId></ErrorResponse>"
    return (
        status,
        headers or {},
        (other if "AutoScaling" in call.api or call.api in NOT_EC2 else ec2).encode(),
    )


def _call(path: str, body: bytes) -> Call:
    form = {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
    if "Action" in form:
        return Call(form["Action"], form)
    return Call("UpdateNodegroupConfig" if path.endswith("/update-config") else "DescribeNodegroup", {"path": path})
