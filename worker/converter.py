"""Payloads between builds: an incident stays on the build that began it, while newer gateways and workers talk to it.

What they say of which it knows nothing is left out: refused, a person's stop would be lost with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)

adapter = lru_cache(maxsize=1024)(TypeAdapter)


class OfAnyBuild(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return adapter(Any if type_hint is None else type_hint).validate_json(payload.data, extra="ignore")


class Converter(CompositePayloadConverter):
    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(OfAnyBuild() if isinstance(one, JSONPlainPayloadConverter) else one for one in usual))


DATA_CONVERTER = DataConverter(payload_converter_class=Converter)
