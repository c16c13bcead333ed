"""What a reply is taken for. None of these changes anything by itself; a wrong `replaced` wastes a person's look."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medevac.cases.replies import MOST_QUOTED, Proposal, own_words, read

OURS = "xid/79 on i-0abc\n\nMachine: i-0abc\nWhat was tried:\n- reboot: the GPU has been replaced in March"


@pytest.mark.parametrize(
    "text",
    [
        "Hello,\nthe GPU has been replaced. Please check.",
        "Our technician replaced GPU 4 this morning.",
        "Replaced the baseboard.",
        "We have swapped out the board, new serial 1652424.",
        "Replacement is done.",
        "We have replaced the faulty GPU with another one earlier today.",
    ],
)
def test_a_replacement_that_is_claimed(text: str) -> None:
    reading = read(text, OURS)
    assert reading.proposal is Proposal.REPLACED
    assert reading.quote
    assert reading.quote in text


@pytest.mark.parametrize(
    "text",
    [
        "The GPU has NOT been replaced yet.",
        "The GPU hasn't been replaced.",
        "The GPU hasn’t been replaced.",
        "It was never replaced.",
        "The GPU has been replaced... NOT",
        "The GPU has been replaced. Not yet!",
        "The GPU was almost replaced.",
        "It is hardly repaired.",
        "These are rarely fixed.",
        "The GPU was supposedly replaced.",
        "It has been swapped in the database only.",
        "The GPU was to have been replaced.",
        "I doubt that it has been replaced.",
        "It is false that the GPU was replaced.",
        "The host has been replaced by mistake.",
        "We have replaced the GPU, however the node does not POST.",
        "We have replaced the GPU but it is gone from the bus.",
        "We have replaced the DIMM in another host.",
        "We have replaced the fan. The GPU: waiting for parts.",
        "The GPU was replaced last month for ticket 12.",
        "The part will be replaced on Monday.",
        "The board is going to be replaced.",
        "We can confirm that the GPU needs to be replaced.",
        "Should the GPU be replaced?",
        "Has the GPU been replaced?",
        "Once the GPU has been replaced we will write again.",
        "If the board was replaced, please tell us.",
        "The replacement has been ordered and the board is being replaced.",
        "The fan was replaced. The GPU is not yet replaced.",
        "We replaced another customer's GPU.",
        "Repaired? No. The node is still down and nothing was fixed.",
        "We could not confirm that it was replaced.",
        "We failed to swap the GPU; it was replaced by nobody.",
        "尚未: the GPU has been replaced.",
        "The GPU has been replaced. Нет, ещё нет.",
    ],
)
def test_negations_promises_and_questions_claim_nothing(text: str) -> None:
    assert not read(text, OURS).proposal.claims_done


@pytest.mark.parametrize(
    "text",
    [
        "Die GPU wurde noch nicht ausgetauscht.",
        "Die GPU wurde ausgetauscht.",
        "Le GPU a été remplacé.",
        "La GPU fue reemplazada.",
        "GPU 已更换。",
        "GPUを交換しました。",
        "Графический процессор заменён.",
    ],
)
def test_other_languages_are_for_a_person_to_read(text: str) -> None:
    reading = read(text, OURS)
    assert reading.proposal is Proposal.READ
    assert reading.quote == text


@pytest.mark.parametrize(
    "quoted",
    [
        "> The GPU has been replaced in March",
        "On Mon, 2 Mar 2026 at 10:00, Fleet <fleet@us.example> wrote:\nThe GPU has been replaced",
        "-----Original Message-----\nThe GPU has been replaced",
        "Am 02.03.2026 um 10:00 schrieb Fleet:\nThe GPU has been replaced",
        "On Mon, 2 Mar 2026 at 10:00, The Fleet's People On Call <fleet@us.example>\nwrote:\nThe GPU has been replaced",
        "From: fleet@us.example\nThe GPU has been replaced",
        "From: Fleet\nSent: Monday, 2 March 2026\nThe GPU has been replaced",
        "Von: Fleet\nGesendet: Montag, 2. März 2026\nThe GPU has been replaced",
        "- reboot: the GPU has been replaced in March",
        "-- \nReplaced parts shop, we have replaced 10,000 GPUs",
        "bq. The GPU has been replaced",
    ],
)
def test_our_own_text_comes_back_as_no_news(quoted: str) -> None:
    assert read(quoted, OURS).proposal is Proposal.NOTHING
    assert read(f"We are looking into it.\n\n{quoted}", OURS).proposal is Proposal.READ


def test_our_own_text_that_a_quote_has_wrapped_anew_claims_nothing() -> None:
    assert read("We look into it.\n- reboot: the GPU\nhas been replaced in\nMarch", OURS).proposal is Proposal.READ


@pytest.mark.parametrize(
    ("text", "headers", "subject"),
    [
        ("I am out of office until Monday. The GPU has been replaced.", {}, ""),
        ("The GPU has been replaced.", {"Auto-Submitted": "auto-replied"}, ""),
        ("The GPU has been replaced.", {"X-Autoreply": "yes"}, ""),
        ("The GPU has been replaced.", {"Return-Path": "<>"}, ""),
        ("Ich bin bis Montag nicht im Büro.", {}, ""),
        ("Hallo", {}, "Automatische Antwort: xid/79"),
        ("Thank you for contacting support. Your request has been received.", {}, ""),
        ("Ticket #4711 has been opened. We write again within a day.", {"Auto-Submitted": "auto-generated"}, ""),
        ("", {}, ""),
        ("  \n> all of it ours", {}, ""),
    ],
)
def test_automatic_replies_are_nothing(text: str, headers: dict[str, str], subject: str) -> None:
    assert read(text, OURS, headers, subject).proposal is Proposal.NOTHING


@pytest.mark.parametrize(
    ("text", "headers", "proposal"),
    [
        ("Your case has been created. We have replaced our portal.", {}, Proposal.READ),
        ("Hello, thank you for contacting us. The GPU has been replaced.", {}, Proposal.READ),
        ("The board was replaced.", {"Auto-Submitted": "auto-generated"}, Proposal.READ),
        ("The board was replaced.", {"Precedence": "bulk"}, Proposal.READ),
        ("Thank you for contacting us. Which rack is it in?", {}, Proposal.ANSWER),
        ("Thank you for your message. Your RMA was declined.", {"X-Auto-Response-Suppress": "All"}, Proposal.REFUSED),
        (f"Thank you for your message. {'We have looked at the logs that you sent. ' * 20}", {}, Proposal.READ),
    ],
)
def test_what_a_desk_carries_claims_nothing_and_is_kept_from_nobody(
    text: str, headers: dict[str, str], proposal: Proposal
) -> None:
    assert read(text, OURS, headers).proposal is proposal


def test_a_person_that_says_it_is_no_automaton() -> None:
    assert read("The GPU has been replaced.", "", {"Auto-Submitted": "no"}).proposal is Proposal.REPLACED


@pytest.mark.parametrize(
    ("text", "proposal"),
    [
        ("The node is back online and healthy.", Proposal.REPAIRED),
        ("We rebooted the host.", Proposal.REPAIRED),
        ("Which rack is it in?", Proposal.ANSWER),
        ("May we take it down tomorrow?", Proposal.ANSWER),
        ("The device is out of warranty.", Proposal.REFUSED),
        ("We cannot replace this part under your contract.", Proposal.REFUSED),
        ("Your RMA was declined.", Proposal.REFUSED),
        ("We are looking into it.", Proposal.READ),
    ],
)
def test_what_else_they_say(text: str, proposal: Proposal) -> None:
    assert read(text, OURS).proposal is proposal


@given(st.text(max_size=400), st.sampled_from(["not", "never", "hasn't", "will", "if", "cannot"]))
def test_no_sentence_with_a_doubt_claims_anything(noise: str, doubt: str) -> None:
    flat = " ".join(noise.split())
    reading = read(f"The GPU {doubt} been replaced {flat.translate(str.maketrans('', '', '.!?。！？'))}")
    assert not reading.proposal.claims_done
    assert len(reading.quote) <= MOST_QUOTED


@pytest.mark.parametrize(
    "piece", ["a" * 50, "has ", "> ", "on ", "<", "was been ", "=\n", "mis", "same ", "1 of ", "sorry for the "]
)
def test_no_text_takes_long(piece: str) -> None:
    """Patterns that look again from each place would run for minutes on these; the suite's time-out is the check."""
    read(piece * 20_000, piece * 5_000)
    own_words(piece * 20_000)
