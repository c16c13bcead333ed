"""Cards as Slack shows them: Block Kit and mrkdwn, within its limits. Pure."""

from __future__ import annotations

from typing import Any

from medevac.telling.card import At, Button, Card, Field, Link, Part, Words

HEADER = 150
SECTION = 3_000
BLOCKS = 50
BUTTON = 75
VALUE = 2_000
CONFIRM_TITLE, CONFIRM_TEXT, CONFIRM_BUTTON = 100, 300, 30
TEXT = 3_000
"""Of the fallback; `chat.update` refuses more than 4,000 characters."""
FIELD = 900
"""Of one field: no single one crowds out the others."""
WHOLE = 10_000
"""Of all sections together; Slack refuses messages whose blocks are too long."""
MODAL_TITLE = 24
CONTEXT = 2_000

Block = dict[str, Any]

CALL: Block = {"type": "section", "text": {"type": "mrkdwn", "text": "<!here>"}}
"""Calls those who are in the channel; where there are blocks, a mention in the fallback calls nobody."""


def message(card: Card) -> dict[str, Any]:
    """Arguments of `chat.postMessage` and `chat.update`."""
    return {
        "text": cut(escape(card.summary), TEXT),
        "blocks": blocks(card),
        "unfurl_links": False,
        "unfurl_media": False,
    }


def blocks(card: Card) -> list[Block]:
    made: list[Block] = [{"type": "header", "text": plain_text(card.title, HEADER)}, *sections(card.fields)]
    if card.buttons:
        made.append({"type": "actions", "elements": [_button(one) for one in card.buttons]})
    if card.footnote:
        made.append({"type": "context", "elements": [_mrkdwn(words(card.footnote, CONTEXT))]})
    return made[: BLOCKS - 1]


def sections(fields: tuple[Field, ...]) -> list[Block]:
    """As many fields in a section as fit; what has no room is counted, never dropped in silence."""
    texts: list[str] = []
    left, dropped = WHOLE, 0
    for field in fields:
        said = f"*{cut(escape(field.label), 100)}:* {words(field.words, FIELD)}"
        if len(said) > left:
            dropped += 1
            continue
        left -= len(said)
        if texts and len(texts[-1]) + 1 + len(said) <= SECTION:
            texts[-1] += "\n" + said
        else:
            texts.append(said)
    if dropped:
        texts.append(f"… {dropped} more under Details")
    return [{"type": "section", "text": _mrkdwn(text)} for text in texts]


def modal(title: str, callback: str, made: list[Block], *, submit: str = "", metadata: str = "") -> dict[str, Any]:
    view: dict[str, Any] = {
        "type": "modal",
        "callback_id": callback,
        "title": plain_text(title, MODAL_TITLE),
        "close": plain_text("Close", MODAL_TITLE),
        "blocks": made[:100],
        "private_metadata": metadata,
    }
    return view | ({"submit": plain_text(submit, MODAL_TITLE)} if submit else {})


def asked_reason(label: str, block: str, longest: int) -> Block:
    element = {
        "type": "plain_text_input",
        "action_id": "text",
        "multiline": True,
        "min_length": 3,
        "max_length": longest,
    }
    return {"type": "input", "block_id": block, "label": plain_text(label, 2_000), "element": element}


def section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(cut(escape(text), SECTION))}


def words(said: Words, limit: int) -> str:
    """mrkdwn of at most `limit` characters. A date or a link is shown whole or not at all."""
    out = ""
    for part in said:
        room = limit - len(out)
        made = _part(part)
        if len(made) <= room:
            out += made
        elif isinstance(part, str):
            return out + cut(made, room)
    return out


def escape(text: str) -> str:
    """What Slack asks for; nothing in a payload can then mention people or make a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut(escaped: str, limit: int) -> str:
    if len(escaped) <= limit:
        return escaped
    short = escaped[: max(limit - 1, 0)]
    # Never through the middle of `&amp;`.
    amp = short.rfind("&", max(len(short) - 5, 0))
    if amp >= 0 and ";" not in short[amp:]:
        short = short[:amp]
    return short + "…" if limit > 0 else ""


def plain_text(text: str, limit: int) -> dict[str, Any]:
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return {"type": "plain_text", "text": short or "–", "emoji": False}


def _part(part: Part) -> str:
    match part:
        case At():
            # `^` and `|` would end the fallback; there are none in it.
            fallback = f"{part.at:%Y-%m-%d %H:%M} UTC"
            return f"<!date^{int(part.at.timestamp())}^{{date_short_pretty}} {{time}}|{fallback}>"
        case Link():
            return f"<{escape(part.url).replace('|', '%7C')}|{escape(part.text)}>"
        case str():
            return escape(part)


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text or "–", "verbatim": True}


def _button(button: Button) -> Block:
    if len(button.value) > VALUE:
        raise ValueError(f"the button {button.label} would carry {len(button.value)} characters")
    made: Block = {
        "type": "button",
        "action_id": button.action,
        "text": plain_text(button.label, BUTTON),
        "value": button.value,
    }
    if button.danger:
        made["style"] = "danger"
    if button.confirm:
        made["confirm"] = {
            "title": plain_text(button.confirm.title, CONFIRM_TITLE),
            "text": plain_text(button.confirm.text, CONFIRM_TEXT),
            "confirm": plain_text(button.label, CONFIRM_BUTTON),
            "deny": plain_text("Cancel", CONFIRM_BUTTON),
        }
    return made
