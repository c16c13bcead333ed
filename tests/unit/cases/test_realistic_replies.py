"""Replies as providers write them, with what each is taken for. Where there is any doubt, nothing is claimed."""

from __future__ import annotations

import pytest

from medevac.cases.replies import Proposal, read

PLAIN = [
    ("Hi team,\n\nThe GPU in slot 4 has been replaced and the node is yours again.\n\nRegards, Kim", Proposal.REPLACED),
    ("Update: the baseboard was swapped at 14:20 UTC.", Proposal.REPLACED),
    ("Apologies for the delay. The faulty card has been replaced. Please check.", Proposal.REPLACED),
    ("The card was replaced on 12 March 2026, new serial 1652424.", Proposal.REPLACED),
    ("Our engineers exchanged the GPU tray this morning.", Proposal.REPLACED),
    ("We RMA'd the board and swapped in a spare.", Proposal.REPLACED),
    ("Replacement completed.", Proposal.REPLACED),
    ("GPU 3 has been replaced. No further action is required.", Proposal.REPLACED),
    ("The module was replaced. Do not hesitate to contact us.", Proposal.REPLACED),
    ("We have replaced the NVLink bridge and all links are up.", Proposal.REPLACED),
    ("The host is back online.", Proposal.REPAIRED),
    ("We have rebooted the machine and it is healthy.", Proposal.REPAIRED),
    ("The issue has been fixed.", Proposal.REPAIRED),
    ("Fixed. The power cable was loose.", Proposal.REPAIRED),
    ("We reseated GPU 5 and the node is operational.", Proposal.REPAIRED),
    ("Resolved: firmware updated by our technician.", Proposal.REPAIRED),
    ("The server is now operational with 8 of 8 GPUs.", Proposal.REPAIRED),
    ("It was restarted at 09:10.", Proposal.REPAIRED),
]
DOUBTFUL = [
    # The trouble goes on.
    "We have rebooted, same error.",
    "We rebooted the host. Same issue as before.",
    "Rebooted twice, the Xid persists.",
    "We have replaced the GPU. The node does not POST.",
    "The GPU was replaced. Unfortunately the link is down.",
    "We have restarted it and the fault reappears under load.",
    "The tray was swapped to no avail.",
    "It was repaired, then it fell off the bus again.",
    "The GPU has been replaced; the new one throws Xid 48.",
    "The node was rebooted and remains unreachable.",
    "Reseated. No change.",
    "We've replaced the riser and now see another problem.",
    # A rest is left out.
    "The machine is operational apart from GPU 3.",
    "All GPUs are healthy except for GPU 7.",
    "The node is back online, GPU 3 excluded.",
    "7 of 8 GPUs are healthy.",
    "The host is operational with 7/8 GPUs.",
    "Other than GPU 2 the machine is repaired.",
    "Some of the cards have been replaced.",
    "The links are partly repaired.",
    # A program, or the paper and not the machine.
    "This ticket has been resolved automatically due to inactivity.",
    "Your case was auto-closed. It is resolved.",
    "Your request has been marked as resolved.",
    "Ticket 4711: status changed, is now resolved.",
    "As we have had no response, the issue is considered resolved.",
    "The case has been resolved due to lack of response.",
    # Taken back.
    "The card was swapped. Update: that was the neighbour's.",
    "The GPU has been replaced.\nEDIT: wrong rack, we go there on Friday.",
    "The board was replaced. Sorry, I confused it with node 12.",
    "We replaced it. Correction: we moved the cable.",
    "GPU 4 was replaced. Actually it is GPU 4 of the machine below.",
    "It has been repaired. Please disregard my last line.",
    "The GPU was swapped. P.S.: it was a different node.",
    "The tray has been replaced, then reverted.",
    # Asked, with no mark.
    "Issue: is it resolved",
    "Is the node healthy now",
    "Has the GPU been replaced on your side",
    "Can you tell us: was the board replaced",
    "Hello, are the GPUs operational",
    "Any news, is it fixed",
    # Promised, planned, supposed.
    "The part is in stock and due on Friday, when it is replaced.",
    "A technician is dispatched and the GPU is replaced tonight.",
    "It seems that the host is repaired.",
    "We hope the machine is healthy.",
    "We believe it was fixed by the firmware update.",
    "It is temporarily fixed by a lower power limit.",
    "Theoretically the node is operational.",
    "The GPU is as good as replaced.",
    "Kindly have it rebooted.",
    "The colleague told me it was replaced.",
    "According to our notes the GPU was replaced.",
    # Of something else.
    "We have restarted the diagnostics.",
    "I have exchanged emails with the vendor.",
    "The GPU was replaced in our inventory.",
    "The DIMM was replaced two weeks ago.",
    "We replaced a different node in that rack.",
    "A similar machine of yours was repaired.",
    "We have swapped shifts, I take over from Ann.",
]


@pytest.mark.parametrize(("text", "proposal"), PLAIN)
def test_a_plain_claim_is_read(text: str, proposal: Proposal) -> None:
    assert read(text).proposal is proposal


@pytest.mark.parametrize("text", DOUBTFUL)
def test_in_doubt_nothing_is_claimed_and_a_person_reads_it(text: str) -> None:
    assert not read(text).proposal.claims_done
    assert read(text).proposal is not Proposal.NOTHING


@pytest.mark.parametrize("text", DOUBTFUL)
def test_a_plain_claim_beside_a_doubt_stays_doubtful_in_the_same_line(text: str) -> None:
    assert not read(text.replace("\n", " ")).proposal.claims_done
