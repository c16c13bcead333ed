"""Subscriptions are confirmed for whom we know, at the provider's own host, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.unit.worker.conftest import bearer, sha
from tests.unit.worker.test_signing_in import ARN, SNS_HEADERS, Fetched, clock, key, loader, message
from worker.gateway.app import create_app
from worker.gateway.handshakes import Handshakes
from worker.gateway.senders import Senders
from worker.gateway.services import Services
from worker.gateway.sns import SnsVerifier
from worker.speakers import Sender, Sns, Token

__all__ = ["key", "loader"]

URL = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"


class Confirmed:
    def __init__(self, status: int = 200) -> None:
        self.status, self.urls = status, list[str]()

    async def __call__(self, url: str) -> int:
        self.urls.append(url)
        return self.status


@pytest.fixture
def confirmed() -> Confirmed:
    return Confirmed()


@pytest.fixture
def gateway(services: Services, loader: Fetched, confirmed: Confirmed) -> httpx.AsyncClient:
    verifier = SnsVerifier(loader, clock)
    clusters = ("sim-a",)
    senders = (
        Sender(name="topic", sources=("aws",), clusters=clusters, sns=Sns(topics=(ARN,))),
        Sender(
            name="clouds", sources=("aws", "azure", "oci", "gcp"), clusters=clusters, bearer=Token(sha256=sha("cloud"))
        ),
    )
    changed = replace(
        services,
        senders=Senders(senders, clock, sns=verifier),
        handshakes=Handshakes(verifier, services.threads, confirmed),
    )
    transport = httpx.ASGITransport(app=create_app(changed), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def confirmation(key: rsa.RSAPrivateKey, **changed: str) -> bytes:
    return json.dumps(
        message(key, **{"Type": "SubscriptionConfirmation", "Token": "t", "SubscribeURL": URL, **changed})
    ).encode()


async def test_sns_is_confirmed_once_its_signature_holds(
    gateway: httpx.AsyncClient, confirmed: Confirmed, key: rsa.RSAPrivateKey
) -> None:
    answer = await gateway.post("/v1/events/aws", content=confirmation(key), headers=SNS_HEADERS)
    assert answer.status_code == 202, answer.text
    assert confirmed.urls == [URL]
    also = await gateway.post("/v1/events/aws", content=confirmation(key), headers=bearer("cloud"))
    assert also.status_code == 202, "a sender by token may confirm too, if the signature holds"


async def test_an_unsigned_or_changed_confirmation_is_not_followed(
    gateway: httpx.AsyncClient, confirmed: Confirmed, key: rsa.RSAPrivateKey
) -> None:
    forged = json.loads(confirmation(key))
    forged["SubscribeURL"] = URL.replace("Token=t", "Token=mine")
    for headers, status in ((SNS_HEADERS, 401), (bearer("cloud"), 403)):
        answer = await gateway.post("/v1/events/aws", content=json.dumps(forged).encode(), headers=headers)
        assert answer.status_code == status, answer.text
    del forged["Signature"], forged["SigningCertURL"]
    answer = await gateway.post("/v1/events/aws", content=json.dumps(forged).encode(), headers=bearer("cloud"))
    assert answer.status_code == 403
    assert confirmed.urls == []


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://sns.us-east-1.amazonaws.com@evil.example/",
        "https://sns.us-east-1.amazonaws.com.evil.example/",
        "http://sns.us-east-1.amazonaws.com/",
    ],
)
async def test_no_other_host_is_asked(
    gateway: httpx.AsyncClient, confirmed: Confirmed, key: rsa.RSAPrivateKey, url: str
) -> None:
    answer = await gateway.post("/v1/events/aws", content=confirmation(key, SubscribeURL=url), headers=SNS_HEADERS)
    assert answer.status_code in (400, 403), answer.text
    assert confirmed.urls == []


async def test_a_confirmation_that_fails_is_asked_for_again(
    gateway: httpx.AsyncClient, confirmed: Confirmed, key: rsa.RSAPrivateKey
) -> None:
    confirmed.status = 500
    answer = await gateway.post("/v1/events/aws", content=confirmation(key), headers=SNS_HEADERS)
    assert answer.status_code == 503
    assert "500" in answer.json()["error"]


async def test_oracle_is_confirmed_at_its_own_host(gateway: httpx.AsyncClient, confirmed: Confirmed) -> None:
    url = "https://cell1.notification.us-ashburn-1.oci.oraclecloud.com/20181201/subscriptions/x/confirmation?token=t"
    asking = {"X-OCI-NS-ConfirmationURL": url, **bearer("cloud")}
    answer = await gateway.post("/v1/events/oci", content=b"", headers=asking)
    assert answer.status_code == 202, answer.text
    assert confirmed.urls == [url]
    elsewhere = {**asking, "X-OCI-NS-ConfirmationURL": "https://evil.example/oraclecloud.com/"}
    assert (await gateway.post("/v1/events/oci", content=b"", headers=elsewhere)).status_code == 400
    assert (await gateway.post("/v1/events/oci", content=b"", headers={**asking, **bearer("x")})).status_code == 401
    assert confirmed.urls == [url]


async def test_event_grid_gets_its_code_back(gateway: httpx.AsyncClient) -> None:
    asks = [
        {
            "id": "2d1781af-3a4c-4d7c-bd0c-e34b19da4e66",
            "topic": "/subscriptions/x",
            "subject": "",
            "data": {"validationCode": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"},
            "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
            "eventTime": "2026-01-25T22:12:19.4556811Z",
            "metadataVersion": "1",
            "dataVersion": "1",
        }
    ]
    answer = await gateway.post("/v1/events/azure", json=asks, headers=bearer("cloud"))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"validationResponse": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}
    assert (await gateway.post("/v1/events/azure", json=asks)).status_code == 401
