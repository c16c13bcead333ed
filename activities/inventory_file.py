"""Inventory files, CSV or YAML: what stands in them, or `file:line` of what is wrong. No credential stands in one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medevac.fleet.inventory import Inventory, InventoryError, Record, Reference, checked_bmc
from medevac.policy.text import MAX_BYTES as MAX_YAML_BYTES
from medevac.policy.text import Text, TextError

MAX_BYTES = 16 * 1024 * 1024
MAX_ROWS = 100_000
Rows = Sequence[tuple[str, Mapping[str, Any]]]
"""Each with its `file:line`."""
COLUMNS = tuple(name for name in Record.model_fields if name != "origins")


def read_inventory(paths: Iterable[Path], clusters: Sequence[str]) -> Inventory:
    """Of all files together. Raises `InventoryError`, one line an error."""
    records: list[Record] = []
    errors: list[str] = []
    for path in paths:
        try:
            records.extend(_records(path, _text(path)))
        except InventoryError as error:
            errors.append(str(error))
    if errors:
        raise InventoryError("\n".join(errors))
    return Inventory(records, clusters)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InventoryError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; split it")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise InventoryError(f"{path}: cannot be read: {why}; correct `inventory` in the configuration") from None


def _records(path: Path, text: str) -> list[Record]:
    rows: Rows
    match path.suffix.lower():
        case ".csv":
            rows = _csv(path, text)
        case ".yaml" | ".yml":
            rows = _yaml(path, text)
        case _:
            raise InventoryError(f"{path}: is neither .csv nor .yaml; name it by what it is")
    if len(rows) > MAX_ROWS:
        raise InventoryError(f"{path}: has more than {MAX_ROWS} rows; split it")
    found, errors = [], []
    for origin, row in rows:
        try:
            found.append(_record(origin, row))
        except InventoryError as error:
            errors.append(str(error))
    if errors:
        raise InventoryError("\n".join(errors))
    return found


def _csv(path: Path, text: str) -> Rows:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = [(name or "").strip() for name in reader.fieldnames or ()]
        if unknown := [name for name in names if name not in COLUMNS]:
            raise InventoryError(f"{path}:1: no column is called {unknown[0]!r}; there are: {', '.join(COLUMNS)}")
        if len(set(names)) < len(names):
            raise InventoryError(f"{path}:1: a column is there twice; remove one")
        reader.fieldnames = names
        rows = []
        for row in reader:
            origin = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise InventoryError(f"{origin}: has another number of cells than the first line; correct it")
            rows.append((origin, row))
        return rows
    except csv.Error as error:
        raise InventoryError(f"{path}:{reader.line_num}: not CSV: {error}; correct it") from None


def _yaml(path: Path, text: str) -> Rows:
    if len(text.encode()) > MAX_YAML_BYTES:
        raise InventoryError(f"{path}: is larger than {MAX_YAML_BYTES >> 10} KiB; write so much as CSV")
    try:
        read = Text(text)
    except TextError as error:
        raise InventoryError(f"{path}:{error.place[0]}: {error}") from None
    machines = read.data.get("machines") if set(read.data) == {"machines"} else None
    if not isinstance(machines, list):
        raise InventoryError(f"{path}:1: write `machines:` and a list below it, and nothing else")
    rows = []
    for n, row in enumerate(machines):
        origin = f"{path}:{read.place(('machines', n))[0]}"
        if not isinstance(row, dict):
            raise InventoryError(f"{origin}: a machine is a mapping, such as `node: gpu-7`")
        rows.append((origin, row))
    return rows


def _record(origin: str, row: Mapping[str, Any]) -> Record:
    given: dict[str, Any] = {name: value for name, value in row.items() if value not in ("", None)}
    try:
        for name in ("gpus", "names"):
            if isinstance(given.get(name), str):
                given[name] = tuple(given[name].replace(";", " ").split())
        for name, read in (("bmc_credential", Reference.parse), ("bmc", checked_bmc)):
            if name in given:
                try:
                    given[name] = read(str(given[name]).strip())
                except ValueError as error:
                    raise InventoryError(f"{origin}: `{name}` {error}") from None
        return Record(
            origins=(origin,),
            **{name: str(v) if isinstance(v, int | float) else v for name, v in given.items()},
        )
    except ValidationError as error:
        # Without the values: a password may stand in the wrong column.
        said = (
            f"`{'.'.join(map(str, one['loc'])) or 'row'}`: {one['msg']}" for one in error.errors(include_input=False)
        )
        raise InventoryError(f"{origin}: {'; '.join(said)}; correct it") from None
