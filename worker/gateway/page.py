"""`/docs`: the API on one page, rendered here. No script and nothing fetched from elsewhere."""

from __future__ import annotations

import html
import json

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:2rem;border-bottom:1px solid #d0d7de}code,pre{font:14px/1.4 ui-monospace,monospace}
pre{background:#f6f8fa;padding:1rem;overflow:auto}b.m{display:inline-block;min-width:4.5rem}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}pre{background:#161b22}h2{border-color:#30363d}}
"""


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    schema = request.app.openapi()
    groups: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation.get("tags", ["other"])[0], []).append(_operation(path, method, operation))
    parts = [f"<h2>{html.escape(tag)}</h2>{''.join(operations)}" for tag, operations in groups.items()]
    models = html.escape(json.dumps(schema.get("components", {}).get("schemas", {}), indent=1))
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>medevac API</title><style>{_STYLE}</style><h1>medevac API</h1>"
        "<p>Senders and people sign in with their own credentials. The same as data: "
        "<a href=/openapi.json>openapi.json</a>.</p>"
        f"{''.join(parts)}<h2>models</h2><details><summary>JSON Schema</summary><pre>{models}</pre></details></html>"
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})


def _operation(path: str, method: str, operation: dict[str, object]) -> str:
    shown = {key: operation[key] for key in ("parameters", "requestBody", "responses") if key in operation}
    return (
        f"<details><summary><b class=m>{method.upper()}</b> <code>{html.escape(path)}</code> "
        f"{html.escape(str(operation.get('summary', '')))}</summary>"
        f"<p>{html.escape(str(operation.get('description', '')))}</p>"
        f"<pre>{html.escape(json.dumps(shown, indent=1))}</pre></details>"
    )
