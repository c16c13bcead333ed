"""What a machine of a known type must have: the number that stands in the provider's own documents, because a node
that lost a GPU counts what is left. Model names as nvidia-smi prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from medevac.fleet.node import Node
from medevac.model import Model

TYPE = "node.kubernetes.io/instance-type"


class Sku(Model):
    gpus: int
    model: str = ""
    """Empty: any."""


_A100_40 = "NVIDIA A100-SXM4-40GB"
_A100_80 = "NVIDIA A100-SXM4-80GB"
_H100 = "NVIDIA H100 80GB HBM3"
_H200 = "NVIDIA H200"
_B200 = "NVIDIA B200"

SHIPPED: dict[str, Sku] = {
    name: Sku(gpus=8, model=model)
    for model, names in {
        _A100_40: ("p4d.24xlarge", "a2-highgpu-8g", "Standard_ND96asr_v4", "BM.GPU4.8"),
        _A100_80: ("p4de.24xlarge", "a2-ultragpu-8g", "Standard_ND96amsr_A100_v4", "BM.GPU.A100-v2.8"),
        _H100: ("p5.48xlarge", "a3-highgpu-8g", "a3-megagpu-8g", "Standard_ND96isr_H100_v5", "BM.GPU.H100.8"),
        _H200: ("p5e.48xlarge", "p5en.48xlarge", "a3-ultragpu-8g", "Standard_ND96isr_H200_v5", "BM.GPU.H200.8"),
        _B200: ("p6-b200.48xlarge", "a4-highgpu-8g", "BM.GPU.B200.8"),
    }.items()
    for name in names
}


def sku_of(node: Node, known: Mapping[str, Sku]) -> Sku | None:
    """By what the configuration says of its type, its `Node.sku` or its pool; else by the shipped table."""
    for name in _names(node):
        if (found := known.get(name)) is not None:
            return found
    return SHIPPED.get(node.labels.get(TYPE, ""))


def _names(node: Node) -> Iterator[str]:
    yield from filter(None, (node.labels.get(TYPE), node.sku, node.pool))
