"""node-problem-detector: its node conditions, where `True` is the bad state, and its Events."""

from __future__ import annotations

import re

from medevac.events import k8s_node
from medevac.events.kubernetes import read_objects
from medevac.events.parsing import Parsed, Payload

SOURCE = "npd"

_TELLING = re.compile(
    rb'"(?:component|reportingComponent|reportingController)": ?"'
    rb"[a-z0-9-]*(?:kernel-monitor|abrt-adaptor|docker-monitor|containerd-monitor|kubelet-monitor"
    rb'|systemd-monitor|custom-plugin-monitor|health-checker|disk-monitor|node-problem-detector)"'
    rb'|"type": ?"(?:KernelDeadlock|ReadonlyFilesystem|CorruptDockerOverlay2|Frequent[A-Za-z]{1,60}Restart'
    rb'|FrequentUnregisterNetDevice|KubeletUnhealthy|ContainerRuntimeUnhealthy|NTPProblem)"'
)


def parse(payload: Payload) -> Parsed:
    return read_objects(SOURCE, payload)


def recognises(payload: Payload) -> bool:
    return _TELLING.search(payload.body) is not None and k8s_node.recognises(payload)
