"""What an error of AWS means: surely not sent, perhaps sent, or never to be allowed. By code, never by wording."""

from __future__ import annotations

import re

import botocore.exceptions as boto  # type: ignore[import-untyped]
from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable

THROTTLED = frozenset({
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
    "RequestThrottledException", "TooManyRequestsException", "EC2ThrottledException", "PriorRequestNotComplete",
})  # fmt: skip
DENIED = frozenset({
    "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId",
    "UnrecognizedClientException", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    "OptInRequired", "Blocked", "PendingVerification", "InvalidAccessKeyId", "MissingAuthenticationToken",
    "IncompleteSignature",
})  # fmt: skip
NO_CAPACITY = frozenset({
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
    "InsufficientCapacity", "ReservationCapacityExceeded", "InstanceLimitExceeded", "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded", "InsufficientCapacityOnOutpost",
})  # fmt: skip
SOON = frozenset({"ScalingActivityInProgress", "ResourceContention", "ResourceInUse", "ResourceInUseException"})
DRY_RUN = "DryRunOperation"
THROTTLED_S = 5.0

_CREDENTIALS = (
    boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError, boto.TokenRetrievalError,
    boto.SSOError, boto.ProfileNotFound, boto.ConfigNotFound, boto.RefreshWithMFAUnsupportedError,
)  # fmt: skip
_NEVER_LEFT = (boto.ConnectTimeoutError, boto.EndpointConnectionError, boto.ProxyConnectionError)
_NONSENSE = (
    boto.ParamValidationError, boto.NoRegionError, boto.InvalidRegionError, boto.UnknownServiceError,
    boto.EndpointProviderError,
)  # fmt: skip
_ENCODED = re.compile(r"\s*Encoded authorization failure message: \S+", re.IGNORECASE)
CAUGHT = (boto.BotoCoreError, boto.ClientError, ResponseParserError)
"""The last is what it comes to where something in between answers with a page of its own."""


def code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def of_a_write(error: Exception, what: str) -> NotSent | Unclear:
    """`what` names the call, the account and the region."""
    said = f"{what}: {_said(error)}"
    if isinstance(error, boto.ClientError):
        return _answered(error, said)
    if isinstance(error, (*_CREDENTIALS, *_NONSENSE)):
        return NotSent(said, final=True)
    if isinstance(error, _NEVER_LEFT):
        return NotSent(said)
    return Unclear(said)


def of_a_read(error: Exception, what: str) -> Unreadable:
    said = f"{what}: {_said(error)}"
    denied = code(error) in DENIED
    return NotAllowed(said) if denied or isinstance(error, (*_CREDENTIALS, *_NONSENSE)) else Unreadable(said)


def throttled(error: Exception) -> bool:
    return code(error) in THROTTLED


def _answered(error: boto.ClientError, said: str) -> NotSent | Unclear:
    which = code(error)
    meta = error.response.get("ResponseMetadata", {})
    if which in THROTTLED:
        return NotSent(said, retry_after_s=_wish(meta.get("HTTPHeaders", {})) or THROTTLED_S)
    if which in SOON:
        return NotSent(said, retry_after_s=THROTTLED_S)
    if which == DRY_RUN:
        return NotSent(f"dry run, nothing was done: {said}", final=True)
    if which in NO_CAPACITY:
        return NotSent(f"no capacity: {said}", final=True)
    if int(meta.get("HTTPStatusCode", 0)) >= 500:
        return Unclear(said)
    return NotSent(said, final=True)


def _wish(headers: dict[str, str]) -> float | None:
    try:
        return float(headers.get("retry-after", ""))
    except ValueError:
        return None


def _said(error: Exception) -> str:
    """Without the encoded part, which is long and says to nobody here what it holds."""
    if isinstance(error, boto.ClientError):
        message = _ENCODED.sub("", str(error.response.get("Error", {}).get("Message", "")))
        return f"{message[:300]} ({code(error)})"
    return f"{type(error).__name__}: {str(error)[:300]}"
