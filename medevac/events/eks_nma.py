"""EKS node monitoring agent: `*Ready` conditions whose reason names the Xid or DCGM code, and its Events.

A condition's `False` stays until the agent restarts, and the restart writes `True` without any proof: its clear is
evidence only. EKS and Karpenter may repair such a node by themselves after 10 minutes.
"""

from __future__ import annotations

import re

from medevac.events import k8s_node
from medevac.events.kubernetes import EKS_CONDITIONS, read_objects
from medevac.events.parsing import Parsed, Payload

SOURCE = "eks_nma"

_TELLING = re.compile(
    rb'"component": ?"eks-node-monitoring-agent"|"reportingCo[a-z]+": ?"eks-node-monitoring-agent"|"type": ?"(?:'
    + "|".join(sorted(EKS_CONDITIONS)).encode()
    + rb')"'
)


def parse(payload: Payload) -> Parsed:
    return read_objects(SOURCE, payload)


def recognises(payload: Payload) -> bool:
    return _TELLING.search(payload.body) is not None and k8s_node.recognises(payload)
