"""Each way in: what fits signs in, anything else is 401 and changes nothing. Nothing is fetched from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from activities.secret import Secret
from worker.gateway.authentication import AuthError
from worker.gateway.senders import Senders
from worker.gateway.sns import FRESH_S, SnsVerifier, canonical
from worker.speakers import Oidc, Sender, Sns

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = b"a secret of enough length"
ARN = "arn:aws:sns:us-east-1:123456789012:gpu-health"
PEM = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
AUDIENCE = "https://gateway.example/v1/events/gcp"
EMAIL = "push@project.iam.gserviceaccount.com"


def clock() -> float:
    return NOW.timestamp()


def make(tmp_path: Path, **way: Any) -> Sender:
    return Sender(name="it", sources=("aws",), clusters=("c",), **way)


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    (tmp_path / "secret").write_bytes(KEY)
    return Secret(file=tmp_path / "secret")


def mac(body: bytes, key: bytes = KEY) -> str:
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def signs_in(senders: Senders, headers: dict[str, str], body: bytes = b"") -> str:
    found = senders.by_headers(headers) or senders.by_signature(headers, body)
    return found.name


def refused(senders: Senders, headers: dict[str, str], body: bytes = b"") -> str:
    with pytest.raises(AuthError) as caught:
        signs_in(senders, headers, body)
    assert caught.value.status == 401
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- PagerDuty, Grafana ----------------------------------------------------------------------------------------


def test_pagerduty_signs_with_one_of_several(tmp_path: Path, secret: Secret) -> None:
    senders = Senders([make(tmp_path, pagerduty=secret)], clock)
    body = b'{"event": {}}'
    for header in (f"v1={mac(body)}", f"v1={'0' * 64},v1={mac(body)}", f"v0=x, v1={mac(body).upper()}"):
        assert signs_in(senders, {"x-pagerduty-signature": header}, body) == "it"
    for header in (f"v0={mac(body)}", mac(body), f"v1={mac(body, b'another')}", "v1=", ",,,", "v1=é"):
        refused(senders, {"x-pagerduty-signature": header}, body)
    refused(senders, {"x-pagerduty-signature": f"v1={mac(body)}"}, body + b" ")
    refused(senders, {"x-pagerduty-signature": ",".join([f"v1={'0' * 64}"] * 10 + [f"v1={mac(body)}"])}, body)


def test_grafana_signs_with_and_without_a_timestamp(tmp_path: Path, secret: Secret) -> None:
    senders = Senders([make(tmp_path, grafana=secret)], clock)
    body, stamp = b'{"alerts": []}', str(int(NOW.timestamp()))
    assert signs_in(senders, {"x-grafana-alerting-signature": mac(body)}, body) == "it"
    signed = mac(stamp.encode() + b":" + body)
    both = {"x-grafana-alerting-signature": signed, "x-grafana-alerting-timestamp": stamp}
    assert signs_in(senders, both, body) == "it"
    refused(senders, {"x-grafana-alerting-signature": signed}, body)
    old = str(int(NOW.timestamp()) - 400)
    stale = {
        "x-grafana-alerting-signature": mac(old.encode() + b":" + body),
        "x-grafana-alerting-timestamp": old,
    }
    assert "300 s" in refused(senders, stale, body)
    refused(senders, {**both, "x-grafana-alerting-timestamp": "soon"}, body)


def test_a_signature_of_a_kind_that_nobody_uses_signs_nobody_in(tmp_path: Path, secret: Secret) -> None:
    senders = Senders([make(tmp_path, grafana=secret)], clock)
    for header in ("x-pagerduty-signature", "webhook-signature", "x-amz-sns-message-type"):
        refused(senders, {header: f"v1={mac(b'')}"})


# -- SNS -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(key: rsa.RSAPrivateKey, begins: datetime, ends: datetime) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


class Fetched:
    def __init__(self, pem: bytes) -> None:
        self.pem, self.urls = pem, list[str]()

    def __call__(self, url: str) -> bytes:
        self.urls.append(url)
        return self.pem


@pytest.fixture
def loader(key: rsa.RSAPrivateKey) -> Fetched:
    return Fetched(certificate(key, NOW - timedelta(days=1), NOW + timedelta(days=1)))


def message(key: rsa.RSAPrivateKey, version: str = "2", **changed: str) -> dict[str, str]:
    said = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": ARN,
        "Message": "{}",
        "Timestamp": NOW.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "SignatureVersion": version,
        "SigningCertURL": PEM,
        **changed,
    }
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303
    signature = key.sign(canonical(said), padding.PKCS1v15(), algorithm)
    return {**said, "Signature": base64.b64encode(signature).decode()}


SNS_HEADERS = {"x-amz-sns-message-type": "Notification"}


def sns_senders(loader: Callable[[str], bytes], tmp_path: Path) -> Senders:
    verifier = SnsVerifier(loader, clock)
    return Senders([make(tmp_path, sns=Sns(topics=(ARN,)))], clock, sns=verifier)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("more", [{}, {"Subject": "a subject"}])
def test_sns_signs_in_by_its_topic(
    key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path, version: str, more: dict[str, str]
) -> None:
    senders = sns_senders(loader, tmp_path)
    for n in range(3):
        body = json.dumps(message(key, version, MessageId=f"m-{n}", **more)).encode()
        assert signs_in(senders, SNS_HEADERS, body) == "it"
    assert loader.urls == [PEM], "the certificate is fetched once"


def test_an_sns_confirmation_is_signed_over_its_own_fields(
    key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path
) -> None:
    said = message(
        key, Type="SubscriptionConfirmation", Token="t", SubscribeURL="https://sns.us-east-1.amazonaws.com/?x"
    )
    assert signs_in(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(said).encode()) == "it"
    said["SubscribeURL"] += "y"
    refused(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(said).encode())


@pytest.mark.parametrize("field", ["Message", "MessageId", "Timestamp", "TopicArn", "Type", "Subject", "Signature"])
def test_a_changed_sns_message_is_refused(key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path, field: str) -> None:
    said = message(key)
    said[field] = {"Timestamp": (NOW + timedelta(seconds=1)).isoformat(), "Type": "UnsubscribeConfirmation"}.get(
        field, "AAAA"
    )
    refused(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(said).encode())


def test_somebody_elses_topic_is_refused_though_amazon_signed_it(
    key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path
) -> None:
    said = message(key, TopicArn="arn:aws:sns:us-east-1:999999999999:mine")
    assert "topics" in refused(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(said).encode())
    assert loader.urls == []


@pytest.mark.parametrize(
    "url",
    [
        "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem",
        "https://sns.us-east-1.amazonaws.com.evil.example/SimpleNotificationService-1.pem",
        "https://evil.example/SimpleNotificationService-1.pem",
        "https://sns.us-east-1.amazonaws.com@evil.example/SimpleNotificationService-1.pem",
        "https://sns.us-east-1.amazonaws.com:8443/SimpleNotificationService-1.pem",
        "https://bucket.s3.amazonaws.com/SimpleNotificationService-1.pem",
        "https://sns.us-east-1.amazonaws.com/other.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem?x=1",
        "file:///etc/passwd",
        "",
    ],
)
def test_certificates_come_from_sns_and_nowhere_else(
    key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path, url: str
) -> None:
    refused(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(message(key, SigningCertURL=url)).encode())
    assert loader.urls == []


@pytest.mark.parametrize("seconds", [-FRESH_S - 1, FRESH_S + 1])
def test_an_old_sns_message_is_refused(key: rsa.RSAPrivateKey, loader: Fetched, tmp_path: Path, seconds: float) -> None:
    said = message(key, Timestamp=(NOW + timedelta(seconds=seconds)).isoformat())
    assert "replay" in refused(sns_senders(loader, tmp_path), SNS_HEADERS, json.dumps(said).encode())


def test_an_expired_certificate_is_refused(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    expired = Fetched(certificate(key, NOW - timedelta(days=9), NOW - timedelta(days=1)))
    refused(sns_senders(expired, tmp_path), SNS_HEADERS, json.dumps(message(key)).encode())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"TopicArn": 1}', b"[" * 100_000, json.dumps({"TopicArn": ARN}).encode()]
)
def test_what_is_no_sns_message_is_refused(loader: Fetched, tmp_path: Path, body: bytes) -> None:
    refused(sns_senders(loader, tmp_path), SNS_HEADERS, body)


def test_a_certificate_that_cannot_be_had_is_not_the_senders_fault(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    with pytest.raises(AuthError) as caught:
        signs_in(sns_senders(Fetched(b"no PEM"), tmp_path), SNS_HEADERS, json.dumps(message(key)).encode())
    assert caught.value.status == 503, "SNS comes again"


# -- identity tokens -------------------------------------------------------------------------------------------


def jwks(key: rsa.RSAPrivateKey, kid: str = "k1") -> dict[str, Any]:
    return {"keys": [{**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256"}]}


def token(key: Any, kid: str = "k1", algorithm: str = "RS256", **changed: Any) -> dict[str, str]:
    seconds = int(datetime.now(UTC).timestamp())
    claims = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": EMAIL,
        "email_verified": True,
        "sub": "1",
        "iat": seconds,
        "exp": seconds + 3600,
        **changed,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return {"authorization": "Bearer " + jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})}


@pytest.fixture
def pushed(key: rsa.RSAPrivateKey, tmp_path: Path) -> tuple[Senders, list[str]]:
    urls: list[str] = []

    def load(url: str) -> dict[str, Any]:
        urls.append(url)
        return jwks(key)

    oidc = Oidc(audience=AUDIENCE, email=EMAIL)
    return Senders([make(tmp_path, oidc=oidc)], oidc=load), urls


def test_pubsub_signs_in_and_keys_are_fetched_once(key: rsa.RSAPrivateKey, pushed: tuple[Senders, list[str]]) -> None:
    senders, urls = pushed
    for _ in range(3):
        assert signs_in(senders, token(key)) == "it"
    assert signs_in(senders, token(key, iss="accounts.google.com")) == "it"
    assert urls == ["https://www.googleapis.com/oauth2/v3/certs"]


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "https://elsewhere.example"},
        {"iss": "https://evil.example"},
        {"email": "other@project.iam.gserviceaccount.com"},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"aud": None},
    ],
)
def test_a_token_for_or_of_somebody_else_is_refused(
    key: rsa.RSAPrivateKey, pushed: tuple[Senders, list[str]], changed: dict[str, Any]
) -> None:
    refused(pushed[0], token(key, **changed))


def test_only_the_issuers_own_rsa_keys_count(key: rsa.RSAPrivateKey, pushed: tuple[Senders, list[str]]) -> None:
    senders, urls = pushed
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    refused(senders, token(other))
    for n in range(5):
        refused(senders, token(key, kid=f"unknown-{n}"))
    assert len(urls) == 1, "unknown key ids don't hammer the issuer"
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    refused(senders, token(hashlib.sha256(public).digest(), algorithm="HS256"))
    signed = token(key)["authorization"]
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').decode().rstrip("=")
    refused(senders, {"authorization": f"Bearer {head}.{signed.split('.')[1]}."})
    for text in ("a.b.c", "..", "x" * 20_000 + ".a.b", "é.é.é"):
        refused(senders, {"authorization": f"Bearer {text}"})


def test_configuration_asks_whom_to_believe() -> None:
    with pytest.raises(ValidationError, match="email"):
        Oidc(audience=AUDIENCE)
    with pytest.raises(ValidationError, match="exactly one"):
        Sender(name="it", sources=("gcp",), clusters=("c",))
    with pytest.raises(ValidationError, match="exactly one"):
        Sender(
            name="it", sources=("gcp",), clusters=("c",), sns=Sns(topics=(ARN,)), oidc=Oidc(audience="a", subject="1")
        )
