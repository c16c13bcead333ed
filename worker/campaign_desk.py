"""Lists what a campaign would do, from the clusters and the ledger as they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from activities.means import means
from activities.ports import Cluster, HasOthers, ListsWork
from activities.registry import Registry
from activities.storage.intents import machine_key
from medevac.approvals.approval import ApprovalRequest, Waiter
from medevac.campaigns import wording
from medevac.campaigns.listing import CampaignPlan, list_nodes
from medevac.campaigns.spec import Act, Spec
from medevac.faults.classes import Covers
from medevac.fleet.census import node_key
from medevac.fleet.node import Node, Workload
from medevac.policy.policy import Policy
from medevac.policy.standing import Surroundings
from worker.stores import Stores
from workflows.messages import campaign_workflow_id

MOST = 50_000
MANY = 20
"""Nodes of one cluster from which the work on all of its nodes is read together."""
AT_ONCE = 8
"""Nodes whose work is read at a time, where it is read node by node."""


def plan(spec: Spec, registry: Registry, stores: Stores, now: datetime) -> CampaignPlan:
    """Raises `Nothing`, `NotConfigured`, `Unreadable`."""
    version = stores.policies.active()
    policy = version.policy
    nodes: list[Node] = []
    workloads: dict[str, Sequence[Workload]] = {}
    can_check: set[str] = set()
    around: dict[str, Surroundings] = {}
    for cluster in registry.clusters():
        chosen: list[str] = []
        for found in cluster.nodes():
            node = policy.place(found)
            key = node_key(node.cluster, node.name)
            if spec.selector.takes(node):
                node = _capable(registry, node)
                covers = registry.checks(cluster.name).covers(node)
                if Covers.SERVICE in covers or (spec.act is Act.CHECK and covers):
                    can_check.add(key)
                chosen.append(node.name)
                if isinstance(cluster, HasOthers):
                    around[key] = Surroundings(remediators=tuple(cluster.remediators(node)))
            nodes.append(node)
        workloads |= {node_key(cluster.name, name): works for name, works in _work(cluster, chosen).items()}
    machines = {
        node_key(node.cluster, node.name): machine_key(node.machine.id, node.cluster, node.name)
        for node in nodes
        if spec.selector.takes(node)
    }
    begun = stores.ledger.attempts_of(machines.values(), now)
    open_now = stores.ledger.incidents(open_only=True, limit=MOST)
    return list_nodes(
        spec,
        nodes,
        policy=policy,
        policy_version=version.version,
        in_incident={node_key(view.cluster, view.node): view.id for view in open_now},
        workloads=workloads,
        can_check=can_check,
        around=around,
        now=now,
        tried={key: begun[machine] for key, machine in machines.items() if machine in begun},
    )


def _work(cluster: Cluster, names: Sequence[str]) -> Mapping[str, Sequence[Workload]]:
    """Raises `Unreadable`."""
    if len(names) >= MANY and isinstance(cluster, ListsWork):
        every = cluster.all_workloads()
        return {name: every.get(name, ()) for name in names}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(names, threads.map(cluster.workloads, names), strict=True))


def _capable(registry: Registry, node: Node) -> Node:
    capabilities = means(registry, node.cluster, node.machine.provider).capabilities(node)
    return node.model_copy(update={"machine": node.machine.model_copy(update={"capabilities": capabilities})})


def approval_of(campaign: str) -> str:
    return f"campaign-{campaign}"


def question(plan: CampaignPlan, policy: Policy, now: datetime) -> ApprovalRequest:
    """Always fleet-wide, whatever the policy lets go by itself."""
    spec = plan.spec
    what = f"{spec.act} of {len(plan.members)} nodes"
    why = (f"a campaign asks, always: {what}", spec.reason)
    need = policy.need(policy.who_may.fleet, why)
    return ApprovalRequest(
        id=approval_of(spec.id),
        title=f"campaign {spec.id}: {what}",
        need=need,
        fleet_wide=True,
        requested_by=spec.requested_by,
        requested_at=now,
        expires_at=now + timedelta(seconds=need.expires_s),
        policy_version=plan.policy_version,
        waiter=Waiter(
            incident=spec.id,
            workflow_id=campaign_workflow_id(spec.id),
            cluster=", ".join(sorted({member.cluster for member in plan.members})),
            node=f"{len(plan.members)} nodes",
            plan_hash=plan.hash,
            text=wording.question(plan),
            destroys=wording.costs(plan),
        ),
    )
