"""What people read and order: incidents, votes, holds, freezes. All through the gateway, as themselves."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from worker.cli.output import Failed, plain, print_json, print_styled, print_table, style_of, tell_cut

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Incident = Annotated[str, typer.Argument(help="Incident id, or the name of its node.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Kept in the ledger, shown to the others.")]
Needed = Annotated[str, typer.Option("--reason", "-r", prompt=True, help="Kept in the ledger, shown to the others.")]

LONGEST_HOLD_S = 7 * 86_400


def register(app: typer.Typer) -> None:
    for command in (
        incidents,
        approvals,
        approve,
        reject,
        hold,
        resume,
        abort,
        assign,
        confirm,
        adopt,
        freeze,
        thaw,
        fences,
        breakers,
    ):
        app.command()(command)


def incidents(
    incident: Annotated[str | None, typer.Argument(help="One incident with all its lines; without: the list.")] = None,
    ended: Annotated[bool, typer.Option("--all", help="Those that have ended as well.")] = False,
    cluster: str | None = None,
    node: str | None = None,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists incidents, or tells one from its first event to now."""
    api = _api()
    if incident:
        from worker.cli.api import part

        found = api.get(f"/v1/incidents/{part(_incident(api, incident))}")
        if as_json:
            print_json(found)
        else:
            _tell(found)
        return
    listed = api.get("/v1/incidents", open=not ended, cluster=cluster, node=node, limit=limit)
    tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    print_table(
        ("incident", "node", "fault", "state", "waits for", "owner", "since"),
        (
            (
                i["id"],
                i["node"],
                i["fault"],
                i["end"] or i["state"],
                i["waiting_for"],
                i["owner"],
                _minute(i["opened_at"]),
            )
            for i in listed
        ),
        "no incidents" if ended else "no open incidents",
    )


def approvals(
    approval: Annotated[str | None, typer.Argument(help="One with all that is to weigh; without: the list.")] = None,
    decided: Annotated[bool, typer.Option("--all", help="Those that are decided as well.")] = False,
    limit: int = 100,
    as_json: AsJson = False,
) -> None:
    """Lists what waits for a yes or no, or shows one question."""
    if approval:
        found = _asked(_api(), approval)
        if as_json:
            print_json(found)
        else:
            _show(found)
        return
    listed = _api().get("/v1/approvals", pending=not decided, limit=limit)
    tell_cut(len(listed), limit)
    if as_json:
        print_json(listed)
        return
    print_table(
        ("approval", "question", "nodes", "votes", "needs", "state", "until"),
        (
            (
                a["id"],
                a["title"],
                len(a["waiters"]),
                f"{len(a['votes'])} of {a['need']['threshold']}",
                " or ".join(a["need"]["groups"]),
                a["state"],
                a["expires_at"][:19],
            )
            for a in listed
        ),
        "nothing waits for a vote",
    )


def approve(
    approval: str, reason: Reason = "", yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False
) -> None:
    """Votes yes, after showing what would be done."""
    _vote(approval, "approve", reason, yes)


def reject(approval: str, reason: Needed) -> None:
    """Votes no. One no is enough."""
    _vote(approval, "reject", reason, True)


def hold(
    incident: Incident,
    reason: Needed,
    duration: Annotated[str, typer.Option("--for", help="30m, 4h, 2d; at most 7d.")] = "1h",
) -> None:
    """Stops an incident before its next step, until a time."""
    _order(incident, "hold", {"reason": reason, "for_s": _seconds(duration)})


def resume(incident: Incident, reason: Reason = "") -> None:
    """Lets a held incident go on; one that was handed over is planned again, with the facts as they are now."""
    _order(incident, "resume", {"reason": reason})


def abort(incident: Incident, reason: Needed) -> None:
    """Stops an incident for good; says what could still be stopped."""
    _order(incident, "abort", {"reason": reason})


def assign(incident: Incident, owner: str, reason: Reason = "") -> None:
    """Gives an incident to a person."""
    _order(incident, "assign", {"owner": owner, "reason": reason})


def confirm(incident: Incident, reason: Reason = "") -> None:
    """Says that a node is repaired; a check decides whether it returns to service."""
    _order(incident, "confirm-repaired", {"reason": reason})


def adopt(
    node: Annotated[str | None, typer.Option(help="One node, CLUSTER/NODE.")] = None,
    by: Annotated[str | None, typer.Option(help="Those that this one took out of service: NVSentinel, alice.")] = None,
    pool: Annotated[str | None, typer.Option(help="Those of one pool.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Those of one cluster.")] = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list which it would be.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Lists nodes that were out of service before medevac knew them, or takes some over. It acts on none by itself."""
    api = _api()
    chosen = {"by": by, "pool": pool, "cluster": cluster}
    if node is not None:
        within, _, chosen["node"] = node.rpartition("/")
        chosen["cluster"] = within or cluster
    if not any(chosen.values()):
        if yes:
            raise Failed("say which: --node, --by, --pool or --cluster; nothing given never means all nodes", 2)
        _adoptable(api.get("/v1/adoptable"), as_json)
        return
    if dry_run or (node is None and not yes):
        _adoptable(api.post("/v1/adoptable", {**chosen, "dry_run": True})["nodes"], as_json)
        if dry_run or not typer.confirm("adopt them?"):
            return
    answer = api.post("/v1/adoptable", {**chosen, "reason": reason})
    print(plain(answer["answer"]))


def _adoptable(listed: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(listed)
        return
    print_table(
        ("node", "pool", "out because"),
        ((f"{n['cluster']}/{n['node']}", n["pool"], n["why"]) for n in listed),
        "no node is out of service unknown to medevac",
    )


def freeze(
    scope: Annotated[str, typer.Argument(help="all, cluster/C, pool/C/P, provider/P or node/C/N.")],
    reason: Needed,
    marks: Annotated[bool, typer.Option(help="Stop marking as well.")] = False,
) -> None:
    """Stops every destructive step in a scope, at once. One person is enough."""
    print(plain(_api().post("/v1/fences/freeze", {"scope": scope, "reason": reason, "marks": marks})["answer"]))


def thaw(scope: str, reason: Reason = "") -> None:
    """One person's word to go on; it takes two."""
    print(plain(_api().post("/v1/fences/thaw", {"scope": scope, "reason": reason})["answer"]))


def fences(as_json: AsJson = False) -> None:
    """Lists the freezes that stand."""
    listed = _api().get("/v1/fences")
    if as_json:
        print_json(listed)
        return
    print_table(
        ("scope", "by", "reason", "marks too", "since", "thaw votes"),
        ((f["scope"], f["by"], f["reason"], f["marks"], f["at"][:19], _votes(f["thaw_votes"])) for f in listed),
        "nothing is frozen",
    )
    for fence in listed:
        for words in fence["lapsed"]:
            print(plain(f"{fence['scope']}: {words}"))


def _votes(votes: list[dict[str, str]]) -> str:
    return "; ".join(
        f"{vote['by']} at {vote['at'][:16].replace('T', ' ')}{': ' if vote['why'] else ''}{vote['why']}"
        for vote in votes
    )


def breakers(
    close: Annotated[str | None, typer.Option(help="CLUSTER/CAUSE: your word that it may close; it takes two.")] = None,
    as_json: AsJson = False,
) -> None:
    """Lists open breakers, or votes to close one."""
    api = _api()
    if close is not None:
        cluster, _, cause = close.partition("/")
        if not cause:
            raise Failed(f"{close}: is no breaker; write CLUSTER/CAUSE as `medevac breakers` lists them", 2)
        print(plain(api.post("/v1/fences/breakers/close", {"cluster": cluster, "cause": cause})["answer"]))
        return
    listed = api.get("/v1/fences/breakers")
    if as_json:
        print_json(listed)
        return
    print_table(
        ("breaker", "reason", "since", "votes to close"),
        ((f"{b['cluster']}/{b['cause']}", b["reason"], b["opened_at"][:19], ", ".join(b["votes"])) for b in listed),
        "no breaker is open",
    )
    for b in listed:
        for words in b.get("lapsed", ()):
            print(plain(f"{b['cluster']}/{b['cause']}: {words}"))


def _api() -> Any:
    from worker.cli.api import person_api

    return person_api()


def _incident(api: Any, named: str) -> str:
    """An incident's id; a node's name stands for its open incident (else its last)."""
    name = named.rpartition("/")[2]
    for is_open in (True, False):
        found = api.get("/v1/incidents", open=is_open, node=name, limit=2)
        if is_open and len(found) > 1 and "/" not in named:
            raise Failed(f"{named} is open in several clusters: {', '.join(i['id'] for i in found)}; say which", 2)
        if found and named != found[0]["id"] and named in (name, f"{found[0]['cluster']}/{name}"):
            return str(found[0]["id"])
    return named


def _order(incident: str, order: str, body: dict[str, Any]) -> None:
    from worker.cli.api import part

    api = _api()
    print(plain(api.post(f"/v1/incidents/{part(_incident(api, incident))}/{order}", body)["answer"]))


def _vote(approval: str, verdict: str, reason: str, sure: bool) -> None:
    from worker.cli.api import part

    api = _api()
    found = _asked(api, approval)
    view = found["approval"]
    _show(found)
    if not sure and not typer.confirm(f"{verdict}?"):
        raise Failed("not voted")
    body = {"verdict": verdict, "shown_hash": view["shown_hash"], "reason": reason}
    print(plain(api.post(f"/v1/approvals/{part(approval)}/votes", body)["answer"]))


def _asked(api: Any, approval: str) -> Any:
    from worker.cli.api import part

    return api.get(f"/v1/approvals/{part(approval)}/card")


def _show(found: dict[str, Any]) -> None:
    """As its voters see it in chat and console; of several who wait, each with what it would lose."""
    from pydantic import TypeAdapter

    from medevac.telling import card

    for line in card.plain(TypeAdapter(card.Card).validate_python(found["card"]), None).splitlines():
        print(plain(line))
    waiters = found["approval"]["waiters"]
    for waiter in waiters if len(waiters) > 1 else ():
        print(plain(f"  {waiter['text']}"))
        for lost in waiter["destroys"]:
            print(plain(f"    destroys {lost}"))


def _tell(found: dict[str, Any]) -> None:
    view = found["incident"]
    waits = f" for {view['waiting_for']}" if view["waiting_for"] else ""
    print_styled(
        (f"{view['id']}  {view['cluster']}/{view['node']}  {view['fault']}  ", "bold"),
        (f"{view['end'] or view['state']}{waits}", style_of(view["end"] or view["state"])),
    )
    for line in found["lines"]:
        how = line["text"].partition(": ")[2].partition(":")[0] if line["kind"] == "step" else line["kind"]
        print_styled(
            (f"  {line['at'][11:19]}  ", "dim"), (f"{line['kind']:<9} ", "cyan"), (line["text"], style_of(how))
        )
    for evidence in {str(kept): kept for line in found["lines"] if (kept := _evidence(line))}.values():
        for piece in evidence.get("pieces", ()):
            about = (
                f"{piece['size']} bytes{', its beginning' if piece.get('cut') else ''}, sha256 {piece['sha256'][:12]}"
            )
            print_styled(("  evidence  ", "cyan"), (f"{piece['name']}  {piece['url']}  ", ""), (about, "dim"))
        for why in evidence.get("missing", ()):
            print_styled(("  evidence  ", "cyan"), (f"missing: {why}", "yellow"))


def _evidence(line: dict[str, Any]) -> dict[str, Any]:
    """What a step kept before it did anything irreversible."""
    found = line.get("data", {}).get("result", {}).get("proof", {}).get("evidence")
    return found if isinstance(found, dict) else {}


def _minute(at: str) -> str:
    """`08-20 10:15`, in UTC; the whole time is in the JSON."""
    return at[5:16].replace("T", " ")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if not match:
        raise Failed(f"{text}: is no duration; write 30m, 4h or 2d", 2)
    length = float(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]
    if not 0 < length <= LONGEST_HOLD_S:
        raise Failed(f"{text}: at most 7d; repeat it when it ends", 2)
    return length
