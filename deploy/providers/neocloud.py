#!/usr/bin/env python3
"""A provider's API as a medevac provider of kind `command`: one program, whose argument is the verb.

A working example to start from: put your provider's addresses and words in `API` and below. It reads what medevac says
on standard input, answers on standard output, and ends with 0 (done), 75 (surely not done, later maybe), 77 (not
allowed), 65 (surely not done, never will be) or anything else (nobody knows), which medevac never calls again.
"""

import http.client
import json
import os
import sys
from urllib.parse import quote, urlsplit

NEVER, LATER, NOT_ALLOWED, UNKNOWN = 65, 75, 77, 1
API = urlsplit(os.environ.get("NEOCLOUD_URL", "https://api.neocloud.example"))
TIMEOUT_S = 20
ENDED = ("terminating", "terminated")
TYPES = {"h100-sxm-80g": "gpu.8x.h100"}
"""Your provider's machine type by SKU: for successors of machines that are somebody else's (`elsewhere: true`)."""


def call(method, path, body=None, key=None):
    """The answer, or None where there is no such thing. Ends the program with what anything else means."""
    kind = http.client.HTTPSConnection if API.scheme == "https" else http.client.HTTPConnection
    connection = kind(API.hostname, API.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {os.environ.get('NEOCLOUD_TOKEN', '')}", "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    try:
        connection.connect()
    except OSError as error:  # it never left
        end(LATER, f"{API.hostname}: {error}")
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        end(UNKNOWN, f"no answer: {error}")
    if answer.status == 404:
        return None
    if answer.status in (429, 503):
        end(LATER, content.decode(errors="replace"), retry_after_s=int(answer.getheader("Retry-After") or 10))
    if answer.status in (401, 403):
        end(NOT_ALLOWED, content.decode(errors="replace"))
    if answer.status >= 500:
        end(UNKNOWN, content.decode(errors="replace"))
    if answer.status >= 400:
        end(NEVER, content.decode(errors="replace"))
    return json.loads(content or b"{}")


def end(status, said="", **answer):
    print(json.dumps(answer))
    print(said[:500], file=sys.stderr)
    sys.exit(status)


def machine(id):
    return call("GET", f"/v1/machines/{quote(id, safe='')}")


def tagged(tag):
    found = call("GET", f"/v1/machines?tag={quote(tag, safe='')}")["machines"]
    return [one for one in found if one["status"] not in ENDED]


def state(told):
    found = machine(told["machine"]["id"]) if told["machine"]["id"] else None
    asked = tagged(told["tag"]) if told["tag"] else []
    gone = found is None or found["status"] == "terminated"
    said = {
        "exists": not gone,
        "power": "on" if not gone and found["status"] == "running" else "off" if gone else "unknown",
        "ready": not gone and found["status"] == "running",
        "image_mark": None if gone else found["installed_at"],
    }
    if asked:
        said |= {"successor_id": asked[0]["id"], "successor_ready": asked[0]["status"] == "running"}
    return said


def act(told, what):
    body = {"type": what} | ({"image": told["machine"]["image"]} if told["machine"]["image"] else {})
    if call("POST", f"/v1/machines/{quote(told['machine']['id'], safe='')}/actions", body) is None:
        end(NEVER, f"there is no machine {told['machine']['id']}")
    return {}


def request(told):
    if told["machine"]["id"]:
        old = machine(told["machine"]["id"])
        if old is None or old["status"] == "terminated":
            end(NEVER, f"there is no machine {told['machine']['id']}")
    else:  # somebody else's: what it is, medevac's word for it says
        old = {"id": "", "type": TYPES.get(told["sku"]), "zone": told["topology"].get("region")}
        if not old["type"]:
            end(NEVER, f"nothing here is a {told['sku']}")
    asked = tagged(told["tag"])
    if asked:
        return {"answer": f"asked for before: {asked[0]['id']}"}
    # The incident is the token: asked again, the same machine is the answer.
    key = f"medevac-{told['tag']}-{old['id']}"
    while True:
        made = call("POST", "/v1/machines", {"type": old["type"], "zone": old["zone"], "tag": told["tag"]}, key)
        if ((machine(made["id"]) or {}).get("status")) not in ENDED:
            return {"answer": made["id"]}
        key += f"-{made['id']}"  # asked for before, and released since: that one never comes again


def terminate(told):
    call("DELETE", f"/v1/machines/{quote(told['machine']['id'], safe='')}")
    return {}


def release(told):
    ended = []
    for one in tagged(told["tag"]):
        if one["id"] not in told["joined"] and one["id"] != told["machine"]["id"]:
            call("DELETE", f"/v1/machines/{quote(one['id'], safe='')}")
            ended.append(one["id"])
    return {"released": ended}


def evidence(told):
    found = call("GET", f"/v1/machines/{quote(told['machine']['id'], safe='')}/console") or {}
    return {"pieces": {"console.txt": found.get("text", "")}}


def check(told):
    call("GET", "/v1/machines?tag=none")  # ends with 77 where the token isn't good
    return {"missing": []}


VERBS = {
    "state": state,
    "reboot": lambda told: act(told, "reboot"),
    "reinstall": lambda told: act(told, "reinstall"),
    "request": request,
    "terminate": terminate,
    "release": release,
    "evidence": evidence,
    "check": check,
}

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](json.load(sys.stdin))))
