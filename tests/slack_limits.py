"""Slack's own limits of blocks, as its API holds them: what is wrong with these, in words; nothing when they are right.

Source: the reference of Block Kit and of composition objects, read in 2026.
"""

from __future__ import annotations

from typing import Any

ACTIONS = 25
CONTEXT = 10


def why_invalid(blocks: Any, most: int = 50) -> list[str]:
    if not isinstance(blocks, list) or not blocks or len(blocks) > most:
        return [f"there must be 1 to {most} blocks, these are {len(blocks) if isinstance(blocks, list) else blocks!r}"]
    wrong: list[str] = []
    actions: list[str] = []
    for n, block in enumerate(blocks):
        where = f"blocks[{n}] ({block.get('type')})"
        match block.get("type"):
            case "header":
                wrong += _text(block.get("text"), 150, f"{where}.text", kinds=("plain_text",))
            case "section":
                wrong += _text(block.get("text"), 3_000, f"{where}.text")
            case "context":
                elements = block.get("elements") or []
                if not 1 <= len(elements) <= CONTEXT:
                    wrong.append(f"{where}: {len(elements)} elements")
                for element in elements:
                    wrong += _text(element, 3_000, where)
            case "actions":
                elements = block.get("elements") or []
                if not 1 <= len(elements) <= ACTIONS:
                    wrong.append(f"{where}: {len(elements)} elements")
                for element in elements:
                    wrong += _button(element, where)
                    actions.append(str(element.get("action_id")))
            case "input":
                wrong += _text(block.get("label"), 2_000, f"{where}.label", kinds=("plain_text",))
                if not isinstance(block.get("element"), dict) or len(str(block["element"].get("action_id", ""))) > 255:
                    wrong.append(f"{where}: no element")
            case _:
                wrong.append(f"{where}: unknown type")
        if len(str(block.get("block_id", ""))) > 255:
            wrong.append(f"{where}: block_id is too long")
    if len(set(actions)) != len(actions):
        wrong.append("an action_id is there twice")
    return wrong


def _button(element: dict[str, Any], where: str) -> list[str]:
    if element.get("type") != "button":
        return [f"{where}: {element.get('type')}"]
    wrong = _text(element.get("text"), 75, f"{where}.button", kinds=("plain_text",))
    if not 1 <= len(str(element.get("action_id", ""))) <= 255:
        wrong.append(f"{where}: action_id")
    if len(str(element.get("value", ""))) > 2_000:
        wrong.append(f"{where}: value of {len(str(element['value']))} characters")
    if element.get("style") not in (None, "primary", "danger"):
        wrong.append(f"{where}: style {element['style']}")
    if (confirm := element.get("confirm")) is not None:
        wrong += _text(confirm.get("title"), 100, f"{where}.confirm.title", kinds=("plain_text",))
        wrong += _text(confirm.get("text"), 300, f"{where}.confirm.text")
        wrong += _text(confirm.get("confirm"), 30, f"{where}.confirm.confirm", kinds=("plain_text",))
        wrong += _text(confirm.get("deny"), 30, f"{where}.confirm.deny", kinds=("plain_text",))
    return wrong


def _text(text: Any, most: int, where: str, kinds: tuple[str, ...] = ("plain_text", "mrkdwn")) -> list[str]:
    if not isinstance(text, dict) or text.get("type") not in kinds:
        return [f"{where}: no text of {kinds}"]
    length = len(str(text.get("text", "")))
    return [] if 1 <= length <= most else [f"{where}: {length} characters of {most}"]


def why_invalid_view(view: Any) -> list[str]:
    if not isinstance(view, dict) or view.get("type") != "modal":
        return ["no modal"]
    wrong = why_invalid(view.get("blocks"), 100) + _text(view.get("title"), 24, "title", kinds=("plain_text",))
    for name in ("submit", "close"):
        if name in view:
            wrong += _text(view[name], 24, name, kinds=("plain_text",))
    if len(str(view.get("private_metadata", ""))) > 3_000 or len(str(view.get("callback_id", ""))) > 255:
        wrong.append("metadata or callback_id is too long")
    if any(block.get("type") == "input" for block in view.get("blocks") or ()) and "submit" not in view:
        wrong.append("a view with an input needs `submit`")
    return wrong
