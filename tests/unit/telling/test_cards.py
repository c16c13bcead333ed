"""What people are shown: all that an approval must hold, and the longest case within Slack's limits."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from activities.chat import blocks
from medevac.approvals.approval import ApprovalState, ApprovalView, Verdict, Voided, Vote, Waiter
from medevac.approvals.tally import leave, result, shown_hash
from medevac.policy.plan import ApprovalNeed, Reminder
from medevac.telling.asking import APPROVE, approval_card, no_means, vote_of
from medevac.telling.card import At, Card, Field, plain
from medevac.telling.facts import Budget, Facts, Job, Links
from tests.slack_limits import why_invalid

AT = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
SNAPSHOT = Path(__file__).parent / "longest.json"
LINKS = Links(incident="https://medevac.example/incidents/{incident}", runbook="https://runbooks.example/{code}")
HOSTILE = "<!channel> & <https://evil.example|click> *bold* ` \u202e"


def need(**changed: object) -> ApprovalNeed:
    given = ApprovalNeed(groups=("approver",), threshold=2, one_of="capacity-owners", expires_s=14_400,
                         why=("it is a reserved slot",))  # fmt: skip
    return given.model_copy(update=changed)


def waiter(n: int = 1, **changed: object) -> Waiter:
    given = Waiter(
        incident=f"inc-{n}",
        workflow_id=f"node/a/gpu-{n}",
        cluster="a",
        node=f"gpu-{n}",
        plan_hash="abcd",
        text=f"a/gpu-{n}: replace for xid/79. The machine fell off the bus twice in 7 days",
        destroys=(
            "Job llama-7b (64 GPUs on 8 nodes): 12.8 GPU-hours since its checkpoint at 00:18:00",
            "the reserved slot of i-0abc",
        ),
    )
    return given.model_copy(update=changed)


def view(*waiters: Waiter, **changed: object) -> ApprovalView:
    listed = waiters or (waiter(),)
    given = ApprovalView(
        id="inc-1/1",
        workflow_id="approval/inc-1/1",
        title="replace gpu-1",
        state=ApprovalState.PENDING,
        fleet_wide=len(listed) > 1,
        need=need(),
        requested_by="kim",
        requested_at=AT,
        expires_at=AT + timedelta(hours=4),
        waiters=listed,
        shown_hash=shown_hash("replace gpu-1", need(), listed),
    )
    return given.model_copy(update=changed)


def facts(n: int = 1, **changed: object) -> Facts:
    given = Facts(
        cluster="a",
        node=f"gpu-{n}",
        rack="r17",
        pool="train",
        provider="aws",
        machine_id="i-0abc",
        serial="S-4711",
        fault="xid/79",
        fault_class="critical",
        entities=("gpu:4",),
        first_seen=AT - timedelta(minutes=12),
        evidence=("one", "two", "three", "four"),
        jobs=(Job(name="llama-7b", owner="research", gpus=64),),
        rung="replace",
        attempt=2,
        of=2,
        budgets=(Budget(domain="rack a/r17", used=0, limit=1), Budget(domain="pool a/train", used=3, limit=5, out=1)),
        spares=2,
        past=("2026-03-20 xid/79: returned", "2026-03-11 xid/79: returned"),
    )
    return given.model_copy(update=changed)


def test_an_owner_whom_the_question_names_is_named_once() -> None:
    named = waiter(destroys=("Job llama-7b (64 GPUs): 90.0 GPU-hours since it began (owner research)",))
    said = plain(approval_card(view(named), {"inc-1": facts()}, LINKS))
    assert said.count("(owner research)") == 1


def test_a_question_holds_all_that_its_voters_must_weigh() -> None:
    said = plain(approval_card(view(), {"inc-1": facts()}, LINKS))
    for what in (
        "cluster a", "node gpu-1", "rack r17", "pool train", "provider aws", "machine i-0abc", "serial S-4711",
        "xid/79", "fallen off the bus", "gpu:4", "https://runbooks.example/xid%2F79",
        "First seen: 2026-03-29 00:18 UTC", "one\n  two\n  three\n", "https://medevac.example/incidents/inc-1",
        "12.8 GPU-hours since its checkpoint at 00:18:00, as of 00:30 UTC, when it was planned (owner research)",
            "llama-7b of research, 64 GPUs",
        "replace, attempt 2 of 2", "the reserved slot of i-0abc",
        "If nobody answers: it is a no at 2026-03-29 04:30 UTC",
        "rack a/r17: 0 of 1 used", "pool a/train: 3 of 5 used, 1 out by others", "spares: 2",
        "2026-03-20 xid/79: returned", "2 of approver, one of them of capacity-owners", "not kim, who asked",
    ):  # fmt: skip
        assert what in said, what
    assert "four" not in said


def test_a_question_says_who_else_may_answer_it_later() -> None:
    later = need(reminder=Reminder(after_s=3_600, then=("oncall",)))
    said = plain(approval_card(view(need=later), {"inc-1": facts()}, LINKS))
    assert "one of them of capacity-owners; from 2026-03-29 01:30 UTC on members of oncall as well; not kim" in said


def test_the_reader_sees_their_own_clock() -> None:
    card = Card("t", "s", fields=(Field("First seen", (At(AT),)),))
    assert "02:30" in plain(card, timezone(timedelta(hours=2)))
    [section] = blocks.sections(card.fields)
    assert section["text"]["text"].endswith("<!date^1774744200^{date_short_pretty} {time}|2026-03-29 00:30 UTC>")


def test_what_one_answer_destroys_is_named_once_and_a_campaign_is_no_incident() -> None:
    both = view(waiter(1), waiter(2))
    said = plain(approval_card(both, {"inc-1": facts(), "inc-2": facts(2)}, LINKS))
    assert said.count("the reserved slot of i-0abc") == 1
    campaign = waiter(incident="driver-580", workflow_id="campaign/driver-580", cluster="a, b", node="64 nodes")
    said = plain(approval_card(view(campaign), {}, LINKS))
    assert "Evidence: `medevac campaign show driver-580`" in said
    assert "/incidents/" not in said
    assert "Where: cluster a, b, 64 nodes" in said
    assert "Jobs hit" not in said, "the question's own words say them"


def test_a_question_that_all_have_left_is_still_shown() -> None:
    left = leave(leave(view(waiter(1), waiter(2)), "inc-1"), "inc-2")
    decided = result(left, AT)
    assert decided is not None
    over = approval_card(left.model_copy(update={"state": decided.state, "result": decided}), {}, LINKS)
    assert over.buttons == ()
    assert (
        "withdrawn: replace gpu-1\nDecision: withdrawn: nobody waits for it any more at 2026-03-29 00:30 UTC\n"
        in plain(over)
    )
    assert [one.label for one in approval_card(left, {}, LINKS).buttons] == ["Approve", "Reject …", "Details"]


def test_what_is_not_known_is_said() -> None:
    said = plain(approval_card(view(), {"inc-1": facts(jobs=(), unreadable="the node: no answer")}, Links()))
    assert "Jobs hit: can't be read now" in said
    assert "Can't be read now: the node: no answer" in said
    assert "medevac incidents inc-1" in said
    # A waiter that nobody knows anything of is still asked about.
    assert "gpu-1" in plain(approval_card(view(), {}, Links()))


def test_of_a_fleet_it_is_said_how_many_nodes_were_not_looked_at() -> None:
    waiters = tuple(waiter(n) for n in range(30))
    known = {w.incident: facts(n, rack=f"r{n % 2}") for n, w in enumerate(waiters)}
    known |= {f"inc-{n}": facts(n, rack="r2", jobs=(), jobs_read=False) for n in range(20, 29)}
    del known["inc-29"]
    said = plain(approval_card(view(*waiters), known, LINKS))
    assert "racks r0 × 10, r1 × 10, r2 × 9, ? × 1" in said
    assert "Jobs hit: 10 nodes not read; of the others:\n  llama-7b of research, 64 GPUs\n" in said
    assert "Last 30 days: 1 node not read; of the others:\n" in said
    assert "… and 24 more" in said, "one line for each of 29 nodes, five of them shown"


def test_a_button_carries_no_more_than_what_and_as_shown() -> None:
    asked = view()
    button = approval_card(asked, {}, LINKS).buttons[0]
    assert (button.action, vote_of(button.value)) == (APPROVE, (asked.id, asked.shown_hash))
    assert set(json.loads(button.value)) == {"a", "h"}


def longest() -> Card:
    """Everything as long as anything in the ledger may be, and as hostile."""
    long = (HOSTILE * 200)[:1_000]
    waiters = tuple(
        waiter(n, text=long, destroys=tuple(f"{n} {k} {long}" for k in range(20)), node=("n" * 200 + str(n)))
        for n in range(500)
    )
    known = {
        w.incident: facts(
            evidence=(long,) * 9,
            jobs=tuple(Job(name=long[:200] + str(n), owner=long[:100], gpus=8) for n in range(50)),
            jobs_read=w is waiters[0],
            past_read=w is waiters[0],
            past=(long,) * 30,
            budgets=tuple(Budget(domain=long[:300], used=n, limit=n) for n in range(9)),
            entities=(long[:200],) * 8,
            unreadable=long,
            rack=long[:200],
        )
        for w in waiters
    }
    one = Vote(approval="a", voter=long[:60], groups=(), verdict=Verdict.APPROVE, shown_hash="h", via="slack", at=AT)
    votes = tuple(one.model_copy(update={"voter": f"{n}{one.voter}"}) for n in range(30))
    asked = view(
        *waiters,
        id=("inc-" + "x" * 300),
        title=long,
        need=need(groups=tuple(f"{n}{long[:60]}" for n in range(30)), why=(long,) * 9),
        votes=votes,
    )
    return approval_card(asked, known, LINKS)


def test_the_longest_case_is_within_slacks_limits_and_hurts_nobody() -> None:
    made = blocks.message(longest())
    assert why_invalid(made["blocks"]) == []
    assert len(made["text"]) <= 4_000
    assert sum(len(str(block)) for block in made["blocks"]) < 16_000
    texts = [block["text"]["text"] for block in made["blocks"] if block["type"] == "section"]
    # Plain text, as the header's, is shown as it stands; all else could mention people or make links.
    for text in (made["text"], *texts):
        assert "<!channel>" not in text
        assert "<https://evil" not in text
    for label in ("Who may approve", "If nobody answers", "Nodes (500)", "Destroys", "Fault", "Where", "Budgets"):
        assert any(f"*{label}:*" in text for text in texts), label
    for label in ("Jobs hit", "Last 30 days"):
        assert any(f"*{label}:* 499 nodes not read; of the others:" in text for text in texts), label
    # `MEDEVAC_SNAPSHOT=1` writes it anew, to be looked at in Slack's Block Kit Builder.
    if os.environ.get("MEDEVAC_SNAPSHOT") == "1":
        SNAPSHOT.write_text(json.dumps(made, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
    assert json.loads(SNAPSHOT.read_text(encoding="utf-8")) == made


def test_no_cut_goes_through_an_escape() -> None:
    for limit in range(1, 40):
        short = blocks.cut(blocks.escape("a&b<c>d&e" * 5), limit)
        assert len(short) <= limit
        bare = short.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")
        assert "&" not in bare


def test_what_would_be_lost_is_of_the_moment_it_is_shown_and_stands_with_the_jobs_hit() -> None:
    job = Job(name="llama-7b", owner="research", gpus=64, lost="76.8 GPU-hours since its checkpoint at 00:18:00",
              lost_at=AT + timedelta(hours=1))  # fmt: skip
    for shown in (view(), view(waiter(1), waiter(2))):
        said = plain(approval_card(shown, {"inc-1": facts(jobs=(job,)), "inc-2": facts(2, jobs=(job,))}, LINKS))
        fresh = "(64 GPUs on 8 nodes): 76.8 GPU-hours since its checkpoint at 00:18:00, as of 01:30 UTC"
        assert fresh in said
        assert "12.8" not in said
        assert "llama-7b of research, 64 GPUs; would lose 76.8 GPU-hours" in said
    planned = view(joined={"inc-1": AT + timedelta(minutes=7)})
    assert "as of 00:37 UTC, when it was planned" in plain(approval_card(planned, {}, LINKS))


def test_no_answer_and_a_no_mean_what_they_mean_for_who_waits() -> None:
    def means(*waiters: Waiter) -> tuple[str, str]:
        shown = view(*waiters)
        return plain(approval_card(shown, {}, LINKS)), no_means(shown)

    for kind, silence, no in (
        ("node/a/gpu-1", "the node stays as it is, and a person must take it from there", "holds for 24 hours"),
        ("campaign/drv", "the campaign ends and no node of it is touched", "the campaign ends"),
        ("case/aws/c-1", "no ticket is opened with the provider", "no ticket is opened"),
    ):
        card, said = means(waiter(workflow_id=kind))
        assert silence in card
        assert no in said
        assert ("24 hours" in said) == kind.startswith("node/")
        assert ("stays as it is" in card) == kind.startswith("node/")


def test_a_vote_that_counts_no_longer_is_shown_until_its_voter_is_heard_again() -> None:
    vote = Vote(approval="inc-1/1", voter="ada", groups=("approver",), verdict=Verdict.APPROVE, shown_hash="old",
                via="cli", at=AT)  # fmt: skip
    lost = Voided(vote=vote, at=AT, why="1 more waits for it now: gpu-2")
    said = plain(approval_card(view(voided=(lost,)), {}, LINKS))
    assert "No longer counts: ada's word of 00:30 UTC no longer counts: 1 more waits for it now: gpu-2" in said
    again = plain(approval_card(view(voided=(lost,), votes=(vote,)), {}, LINKS))
    assert "No longer counts" not in again
