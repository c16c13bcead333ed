"""Every ticket system through the same contract, each on its own far side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from activities.ports import NotAllowed, NotSent, Unreadable
from medevac.cases.letter import SHARED
from tests.contracts.rigs import Trouble
from tests.contracts.tickets import KEY, ThreadContract
from tests.integration.tickets.far_mail import FarMail
from tests.integration.tickets.rigs import AwsRig, CommandRig, JiraRig, MailRig


class TestCommand(ThreadContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> CommandRig:
        return CommandRig(tmp_path / "desk")

    def test_what_it_says_of_an_error_holds_no_secret(self, rig: CommandRig) -> None:
        rig.trouble(Trouble.REFUSE)
        with pytest.raises(NotSent, match="no such queue") as refusal:
            self.open(rig)
        assert "hunter2" not in str(refusal.value)

    def test_wrong_credentials_are_final(self, rig: CommandRig) -> None:
        rig.denied()
        with pytest.raises(NotAllowed):
            rig.tickets.find(KEY)
        assert rig.tickets.missing_rights() == []

    def test_a_time_without_its_zone_is_refused_as_no_time(self, rig: CommandRig) -> None:
        tickets, ref = self.ticket(rig)
        rig.answer(ref.id, "Thanks")
        file = rig.folder / f"{ref.id}.json"
        file.write_text(re.sub(r'"at": "[^"]*"', '"at": "2026-03-01T12:00:00"', file.read_text()))
        with pytest.raises(Unreadable, match=r"at: .*timezone"):
            tickets.thread(ref, KEY)

    def test_a_program_that_is_not_there(self, tmp_path: Path) -> None:
        rig = CommandRig(tmp_path / "desk", command=["/nowhere/desk"])
        with pytest.raises(NotSent) as refusal:
            self.open(rig)
        assert refusal.value.final
        with pytest.raises(Unreadable):
            rig.tickets.missing_rights()


class TestMail(ThreadContract):
    retry_after_s = None
    """SMTP says `later`, and never when."""

    @pytest.fixture
    def rig(self) -> Iterator[MailRig]:
        with FarMail() as far:
            yield MailRig(far)

    @pytest.mark.parametrize("name", ["In-Reply-To", "References"])
    def test_a_help_desk_that_writes_subjects_of_its_own_is_heard(self, rig: MailRig, name: str) -> None:
        tickets, ref = self.ticket(rig)
        rig.far.deliver("Which slot?", "[#4711] Your request", **{name: f"<other@us.example>\r\n <{ref.id}>"})
        rig.far.deliver("Another matter", "[#4712] Your request", **{name: "<other@us.example>"})
        theirs = [said.text for said in tickets.thread(ref, KEY).said if not said.ours]
        assert theirs == ["Which slot?"]

    def test_a_letter_with_our_address_that_we_did_not_write_is_heard(self, rig: MailRig) -> None:
        tickets, ref = self.ticket(rig)
        tickets.comment(ref, KEY, f"{KEY}/c1", "Is there any news?")
        rig.far.deliver("The GPU has been replaced.", f"Re: [{KEY}]", sender=f"Fleet <{rig.far.us}>")
        said = tickets.thread(ref, KEY).said
        assert [one.text for one in said if not one.ours] == ["The GPU has been replaced."]
        assert len([one for one in said if one.ours]) == 2, "our letter and our comment"

    def test_the_key_is_in_the_subject_and_one_line(self, rig: MailRig) -> None:
        rig.tickets.open(KEY, "xid/79\r\nBcc: everybody@us.example", "body", "p")
        (letter,) = rig._letters()
        assert letter["Subject"] == f"xid/79 Bcc: everybody@us.example [{KEY}]"
        assert letter["Bcc"] is None

    @pytest.mark.parametrize("which", ["smtp", "imap"])
    def test_a_wrong_password_is_one_clear_line(
        self, rig: MailRig, which: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if which == "imap":
            monkeypatch.setenv("IMAP_PASSWORD", "another one")
            rig = MailRig(rig.far, imap={**rig.far.options()["imap"], "password": {"env": "IMAP_PASSWORD"}})
        else:
            monkeypatch.setenv("MAIL_PASSWORD", "wrong")
        with pytest.raises(NotAllowed, match="doesn't let") as denied:
            rig.tickets.missing_rights()
        assert "password=wrong" not in str(denied.value)

    def test_letters_never_go_in_the_clear_to_another_machine(self) -> None:
        far = FarMail()
        far.smtp_port = far.imap_port = 25
        with pytest.raises(ValueError, match="in the clear"):
            MailRig(far, smtp={"host": "mail.example", "security": "plain"})


class TestJira(ThreadContract):
    @pytest.fixture
    def rig(self) -> Iterator[JiraRig]:
        with JiraRig() as rig:
            yield rig

    def test_the_issue_carries_key_and_own_fields(self, rig: JiraRig) -> None:
        ref = rig.tickets.open(KEY, "t", "b", "p")
        issue = rig.issues[ref.id]
        assert issue["properties"] == [{"key": "medevac", "value": {"key": KEY}}]
        assert issue["fields"]["components"] == [{"name": "GPU"}]
        assert ref.url == f"{rig.far.url}/browse/OPS-1"
        sent = next(asked for asked in rig.far.asked if asked.method == "POST")
        assert sent.headers["authorization"].startswith("Basic ")

    def test_a_label_of_others_is_not_ours(self, rig: JiraRig) -> None:
        ref = rig.tickets.open(KEY, "t", "b", "p")
        rig.issues[ref.id]["properties"] = [{"key": "medevac", "value": {"key": "another"}}]
        assert rig.tickets.find(KEY) is None

    @pytest.mark.parametrize("status", [401, 403])
    def test_wrong_credentials_are_final(self, rig: JiraRig, status: int) -> None:
        rig.far.denied = status
        with pytest.raises(NotAllowed, match=str(status)):
            rig.tickets.missing_rights()
        with pytest.raises(NotSent) as refusal:
            self.open(rig)
        assert refusal.value.final

    def test_a_missing_right_is_named(self, rig: JiraRig) -> None:
        assert rig.tickets.missing_rights() == []
        rig.lacks.add("ADD_COMMENTS")
        assert rig.tickets.missing_rights() == ["ADD_COMMENTS in project OPS"]

    def test_no_token_is_one_clear_line(self, rig: JiraRig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("JIRA_TOKEN")
        with pytest.raises(NotAllowed, match="JIRA_TOKEN"):
            rig.tickets.find(KEY)
        with pytest.raises(NotSent, match="JIRA_TOKEN"):
            self.open(rig)


class TestAwsSupport(ThreadContract):
    @pytest.fixture
    def rig(self, moto: str) -> Iterator[AwsRig]:
        httpx.post(f"{moto}/moto-api/reset").raise_for_status()
        with AwsRig(moto) as rig:
            yield rig

    def test_a_plan_without_api_is_one_clear_line_and_final(self, rig: AwsRig) -> None:
        assert rig.tickets.missing_rights() == []
        rig.no_plan = True
        for ask in (rig.tickets.missing_rights, lambda: rig.tickets.find(KEY)):
            with pytest.raises(NotAllowed, match=r"support plan of account .* has no API"):
                ask()
        with pytest.raises(NotSent, match="has no API") as refusal:
            self.open(rig)
        assert refusal.value.final

    def test_a_severity_that_the_plan_lacks_is_named(self, rig: AwsRig) -> None:
        rig.tickets._options = rig.tickets._options.model_copy(update={"severity": "critical"})
        assert "critical" in rig.tickets.missing_rights()[0]

    def test_unless_told_otherwise_our_own_names_stay_here(self, rig: AwsRig) -> None:
        assert set(rig.tickets.share) == set(SHARED)
