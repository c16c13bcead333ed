"""AWS Support, whose cases take no token: the key stands in the subject, and is looked for before a case is opened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from activities.ports import NotAllowed, NotSent, Said, Thread, TicketRef, Unclear, Unreadable
from activities.providers.aws.access import OWN, Access, Place
from activities.providers.aws.options import Account, Url
from activities.providers.aws.options import Options as AwsOptions
from activities.tickets.options import TicketOptions, mark

NO_PLAN = "SubscriptionRequiredException"
OURS = "medevac"


class Options(TicketOptions):
    region: str = "us-east-1"
    """AWS Support's API is served from there for every region."""
    account: Account | None = None
    """Whose cases these are; None: the account of medevac's own credentials."""
    service: str = "amazon-elastic-compute-cloud-linux"
    category: str = "instance-issue"
    severity: str = Field(default="high", pattern=r"^(low|normal|high|urgent|critical)$")
    cc: tuple[str, ...] = Field(default=(), max_length=10)
    """Addresses that are copied."""
    endpoint: Url | None = None


class AwsSupportTickets:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.share = options.share
        self._options = options
        self._access = Access(
            AwsOptions(
                regions=(options.region,),
                accounts=(options.account,) if options.account else (),
                read_timeout_s=options.timeout_s,
                endpoint=options.endpoint,
            )
        )
        self._place = Place(options.account.id if options.account else OWN, options.region)

    def find(self, key: str) -> TicketRef | None:
        found = self._read("DescribeCases", includeResolvedCases=True, includeCommunications=False, language="en")
        return next((self._ref(case) for case in found.get("cases", ()) if mark(key) in case.get("subject", "")), None)

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        options = self._options
        made = self._write(
            "CreateCase",
            key,
            subject=f"{title[: 250 - len(mark(key))]} {mark(key)}",
            communicationBody=body[:8_000],
            serviceCode=options.service,
            categoryCode=options.category,
            severityCode=options.severity,
            issueType="technical",
            language="en",
            **({"ccEmailAddresses": list(options.cc)} if options.cc else {}),
        )
        if not made.get("caseId"):
            raise Unclear(f"{self.name}: AWS Support said done and named no case")
        return TicketRef(system=self.name, id=str(made["caseId"]))

    def thread(self, ref: TicketRef, key: str) -> Thread:
        found = self._read(
            "DescribeCases", caseIdList=[ref.id], includeResolvedCases=True, includeCommunications=False, language="en"
        )
        case = next(iter(found.get("cases", ())), None)
        if case is None:
            raise Unreadable(f"{self.name}: there is no case {ref.id}")
        # Newest first, as AWS gives them; its own pages hold a hundred at most.
        letters = self._read("DescribeCommunications", caseId=ref.id).get("communications", ())
        return Thread(open=case.get("status") != "resolved", said=tuple(reversed([_said(one) for one in letters])))

    def comment(self, ref: TicketRef, key: str, token: str, text: str) -> None:
        body = f"{text[:7_500]}\n\n[{token}]"
        self._write("AddCommunicationToCase", token, caseId=ref.id, communicationBody=body)

    def close(self, ref: TicketRef, key: str) -> None:
        self._write("ResolveCase", key, caseId=ref.id)

    def missing_rights(self) -> list[str]:
        """Raises `NotAllowed`: the plan without API is a line of its own."""
        levels = self._read("DescribeSeverityLevels", language="en").get("severityLevels", ())
        codes = [str(level.get("code")) for level in levels]
        if codes and self._options.severity not in codes:
            has = ", ".join(codes)
            return [f"open cases of severity {self._options.severity} with its support plan (it has {has})"]
        return []

    def _read(self, api: str, **given: Any) -> Any:
        try:
            return self._access.read(self._place, "support", api, **given)
        except Unreadable as error:
            raise (NotAllowed(self._no_plan()) if NO_PLAN in str(error) else error) from None

    def _write(self, api: str, who: str, **given: Any) -> Any:
        try:
            return self._access.write(self._place, "support", api, who, **given)
        except NotSent as error:
            if NO_PLAN in str(error):
                raise NotSent(self._no_plan(), final=True) from None
            raise

    def _no_plan(self) -> str:
        return (
            f"{self.name}: the support plan of {self._place} has no API; it takes Business, Enterprise On-Ramp or"
            " Enterprise, or another ticket system for this provider"
        )

    def _ref(self, case: dict[str, Any]) -> TicketRef:
        shown = str(case.get("displayId") or "")
        url = f"https://console.aws.amazon.com/support/home#/case/?displayId={shown}" if shown else ""
        return TicketRef(system=self.name, id=str(case["caseId"]), url=url)


def _said(one: dict[str, Any]) -> Said:
    author = str(one.get("submittedBy") or "")
    at = datetime.fromisoformat(str(one["timeCreated"]).replace("Z", "+00:00"))
    text = str(one.get("body") or "")
    # AWS signs its own as `Amazon Web Services`; ours bear the name of whoever signed in.
    return Said(
        id=f"{at.isoformat()}/{len(text)}/{author[:50]}",
        at=at,
        author=author[:100],
        text=text,
        ours="amazon web services" not in author.lower(),
    )


def make(name: str, options: dict[str, Any]) -> AwsSupportTickets:
    return AwsSupportTickets(name, Options.model_validate(options))
