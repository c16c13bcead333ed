"""Names as a policy file may write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=63)]
"""Of a pool, cluster, rule, ladder or group. Matched exactly: there are no wildcards anywhere in a policy."""

Code = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+(/[^\s*]+)?$", max_length=200)]
"""A fault code, e.g. `xid/79`. Matched exactly."""
