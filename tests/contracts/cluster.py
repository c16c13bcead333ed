from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.ports import Eviction, ListsWork, Mark, NotSent, Pod, Unclear, Unreadable
from tests.contracts.rigs import RETRY_AFTER_S, ClusterRig, Trouble

MARK = Mark(incident="inc-1", code="xid-79", faults=("xid/79",), reason="GPU has fallen off the bus")
OTHER = MARK.model_copy(update={"incident": "inc-2"})
NOWHERE = "no-such-node"


def workload_pod(rig: ClusterRig) -> Pod:
    return next(pod for pod in rig.cluster.pods(rig.node) if pod.tier == "workload")


def is_ready(rig: ClusterRig) -> bool:
    return all(work.ready_to_evict for work in rig.cluster.workloads(rig.node))


def still_there(rig: ClusterRig, pod: Pod) -> bool:
    return pod.uid in {other.uid for other in rig.cluster.pods(rig.node)}


class ClusterContract:
    """Subclass it with a fixture `rig` that gives a `ClusterRig`."""

    # -- reading -----------------------------------------------------------------------------------------------

    def test_a_listed_node_is_the_one_that_is_read(self, rig: ClusterRig) -> None:
        listed = {node.name: node for node in rig.cluster.nodes()}
        read = rig.cluster.node(rig.node)
        assert read == listed[rig.node]
        assert read is not None
        assert read.cluster == rig.cluster.name
        assert read.simulated == rig.cluster.simulated
        assert read.ready
        assert read.schedulable
        assert all((read.identity.uid, read.identity.machine_id, read.identity.boot_id))

    def test_a_node_that_does_not_exist_is_none(self, rig: ClusterRig) -> None:
        assert rig.cluster.node(NOWHERE) is None
        assert rig.cluster.pods(NOWHERE) == []
        assert rig.cluster.workloads(NOWHERE) == []

    def test_what_cannot_be_read_says_so(self, rig: ClusterRig) -> None:
        rig.unreadable()
        with pytest.raises(Unreadable):
            rig.cluster.node(rig.node)

    def test_the_work_of_the_pods_is_listed(self, rig: ClusterRig) -> None:
        names = {work.name for work in rig.cluster.workloads(rig.node)}
        assert names == {pod.workload for pod in rig.cluster.pods(rig.node) if pod.tier == "workload"}

    def test_work_says_since_when_it_runs(self, rig: ClusterRig) -> None:
        before = datetime.now(UTC) + timedelta(minutes=5)
        for work in rig.cluster.workloads(rig.node):
            assert work.started_at is not None
            assert work.started_at < before

    def test_the_work_of_all_nodes_is_what_each_of_them_says(self, rig: ClusterRig) -> None:
        if not isinstance(rig.cluster, ListsWork):
            pytest.skip("tells of one node at a time")
        every = rig.cluster.all_workloads()
        said = {name: rig.cluster.workloads(name) for name in rig.own()}
        assert every[rig.node]
        assert {name: works for name, works in every.items() if works and name in said} == {
            name: works for name, works in said.items() if works
        }

    # -- marks -------------------------------------------------------------------------------------------------

    def test_a_mark_takes_the_node_out_and_names_its_incident(self, rig: ClusterRig) -> None:
        assert rig.cluster.mark(rig.node, MARK) == "done"
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert not node.schedulable
        assert node.marked_by == "inc-1"
        assert node.foreign_cordon is None

    def test_a_mark_again_changes_nothing(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        before = rig.cluster.node(rig.node)
        assert rig.cluster.mark(rig.node, MARK) == "already"
        assert rig.cluster.node(rig.node) == before

    def test_the_same_incident_may_say_a_worse_fault(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        assert rig.cluster.mark(rig.node, MARK.model_copy(update={"code": "xid-95"})) == "done"

    def test_another_incidents_mark_is_never_overwritten(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        with pytest.raises(NotSent, match="inc-1"):
            rig.cluster.mark(rig.node, OTHER)
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.marked_by == "inc-1"

    def test_a_mark_takes_the_place_of_one_that_was_left(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        heir = OTHER.model_copy(update={"instead_of": MARK.incident})
        assert rig.cluster.mark(rig.node, heir) == "done"
        assert rig.cluster.mark(rig.node, heir) == "already"
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert (node.marked_by, node.schedulable) == (OTHER.incident, False)
        assert rig.cluster.lift(rig.node, MARK.incident) == "already"
        assert rig.cluster.lift(rig.node, OTHER.incident) == "done"
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.schedulable

    def test_a_node_that_is_gone_cannot_be_marked(self, rig: ClusterRig) -> None:
        with pytest.raises(NotSent) as refusal:
            rig.cluster.mark(NOWHERE, MARK)
        assert refusal.value.final

    def test_a_throttled_mark_was_not_sent(self, rig: ClusterRig) -> None:
        rig.trouble_marking(Trouble.THROTTLE)
        with pytest.raises(NotSent) as refusal:
            rig.cluster.mark(rig.node, MARK)
        assert refusal.value.retry_after_s == RETRY_AFTER_S
        assert not refusal.value.final
        assert rig.cluster.mark(rig.node, MARK) == "done"

    def test_a_mark_whose_answer_was_lost_is_found(self, rig: ClusterRig) -> None:
        rig.trouble_marking(Trouble.TIMEOUT_AFTER)
        with pytest.raises(Unclear):
            rig.cluster.mark(rig.node, MARK)
        assert rig.cluster.mark(rig.node, MARK) == "already"

    def test_lifting_returns_the_node(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        assert rig.cluster.lift(rig.node, "inc-1") == "done"
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.schedulable
        assert node.marked_by is None

    def test_lifting_again_or_from_a_node_that_is_gone_is_already(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        rig.cluster.lift(rig.node, "inc-1")
        assert rig.cluster.lift(rig.node, "inc-1") == "already"
        assert rig.cluster.lift(NOWHERE, "inc-1") == "already"

    def test_only_the_own_mark_is_lifted(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        assert rig.cluster.lift(rig.node, "inc-2") == "already"
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.marked_by == "inc-1"

    def test_others_cordon_stays(self, rig: ClusterRig) -> None:
        rig.cordon("alice")
        rig.cluster.mark(rig.node, MARK)
        marked = rig.cluster.node(rig.node)
        assert marked is not None
        assert marked.foreign_cordon == "alice"
        rig.cluster.lift(rig.node, "inc-1")
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.foreign_cordon == "alice"
        assert not node.schedulable

    def test_someones_uncordon_shows(self, rig: ClusterRig) -> None:
        """A veto: the mark still names us, the node takes work all the same."""
        rig.cluster.mark(rig.node, MARK)
        rig.uncordon()
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert node.schedulable
        assert node.marked_by == "inc-1"

    # -- emptying ----------------------------------------------------------------------------------------------

    def test_an_evicted_pod_terminates(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        pod = workload_pod(rig)
        assert rig.cluster.evict(pod, 30) is Eviction.EVICTED
        rig.pass_time()
        assert not still_there(rig, pod)

    def test_eviction_is_accepted_before_the_pod_has_terminated(self, rig: ClusterRig) -> None:
        pod = workload_pod(rig)
        rig.cluster.evict(pod, 30)
        assert next(p for p in rig.cluster.pods(rig.node) if p.uid == pod.uid).terminating

    def test_what_a_silent_node_was_told_is_not_done_and_says_until_when_it_had(self, rig: ClusterRig) -> None:
        pod = workload_pod(rig)
        assert pod.ends_by is None
        rig.silence()
        node = rig.cluster.node(rig.node)
        assert node is not None
        assert (node.ready, node.reachable) == (False, False)
        before = datetime.now(UTC) if not rig.cluster.simulated else None
        assert rig.cluster.evict(pod, 5) is Eviction.EVICTED
        told = next(p for p in rig.cluster.pods(rig.node) if p.uid == pod.uid)
        assert told.terminating
        assert told.ends_by is not None
        assert before is None or told.ends_by >= before
        rig.grow_late()
        assert still_there(rig, pod)

    def test_evicting_again_is_harmless(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        pod = workload_pod(rig)
        rig.cluster.evict(pod, 30)
        assert rig.cluster.evict(pod, 30) is Eviction.EVICTED
        rig.pass_time()
        assert rig.cluster.evict(pod, 30) is Eviction.GONE

    def test_a_budget_refuses_eviction_but_not_deletion(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        budget = rig.guard(workload_pod(rig))
        pod = workload_pod(rig)
        assert pod.budget == budget
        assert rig.cluster.evict(pod, 30) is Eviction.BUDGET
        rig.pass_time()
        assert still_there(rig, pod)
        assert rig.cluster.delete(pod, 30) is Eviction.EVICTED
        rig.pass_time()
        assert not still_there(rig, pod)

    def test_the_uid_counts_not_the_name(self, rig: ClusterRig) -> None:
        pod = workload_pod(rig)
        rig.replace(pod)
        assert rig.cluster.evict(pod, 30) is Eviction.GONE
        assert rig.cluster.delete(pod, 30) is Eviction.GONE
        rig.pass_time()
        successors = [p for name in rig.own() for p in rig.cluster.pods(name) if p.name == pod.name]
        assert len(successors) == 1
        assert successors[0].uid != pod.uid
        assert not successors[0].terminating

    def test_a_throttled_eviction_was_not_sent(self, rig: ClusterRig) -> None:
        pod = workload_pod(rig)
        rig.trouble_evicting(Trouble.THROTTLE)
        with pytest.raises(NotSent) as refusal:
            rig.cluster.evict(pod, 30)
        assert refusal.value.retry_after_s == RETRY_AFTER_S
        rig.pass_time()
        assert still_there(rig, pod)

    def test_a_marked_node_gets_no_new_work(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        for pod in rig.cluster.pods(rig.node):
            if not pod.tolerates_mark:
                rig.cluster.delete(pod, 0)
        rig.pass_time()
        assert all(pod.tolerates_mark for pod in rig.cluster.pods(rig.node))

    def test_a_notice_can_be_given_again(self, rig: ClusterRig) -> None:
        by = datetime.now(UTC) + timedelta(minutes=5)
        rig.cluster.notice(rig.node, by)
        rig.cluster.notice(rig.node, by)
        assert workload_pod(rig).terminating is False

    def test_an_answer_counts_while_its_notice_stands(self, rig: ClusterRig) -> None:
        by = datetime.now(UTC) + timedelta(minutes=5)
        rig.cluster.notice(rig.node, by)
        assert not is_ready(rig)
        rig.answer()
        rig.cluster.notice(rig.node, by)
        assert is_ready(rig), "the same notice again asks nothing anew"
        rig.cluster.take_back_notice(rig.node, by)
        assert not is_ready(rig)
        rig.cluster.take_back_notice(rig.node, by)
        rig.cluster.notice(rig.node, by + timedelta(hours=1))
        assert not is_ready(rig), "what was said to the first is no answer to the second"

    def test_another_notice_is_asked_anew_and_outlasts_the_first_ones_end(self, rig: ClusterRig) -> None:
        by = datetime.now(UTC) + timedelta(minutes=5)
        sooner = by - timedelta(minutes=2)
        rig.cluster.notice(rig.node, by)
        rig.answer()
        rig.cluster.notice(rig.node, sooner)
        assert not is_ready(rig)
        rig.answer()
        rig.cluster.take_back_notice(rig.node, by)
        assert is_ready(rig), "the drain that gave the first is not the one that gave the second"

    def test_lifting_takes_the_notice_back(self, rig: ClusterRig) -> None:
        rig.cluster.mark(rig.node, MARK)
        rig.cluster.notice(rig.node, datetime.now(UTC) + timedelta(minutes=5))
        rig.answer()
        assert rig.cluster.lift(rig.node, OTHER.incident) == "already"
        assert is_ready(rig)
        rig.cluster.lift(rig.node, MARK.incident)
        assert not is_ready(rig)
