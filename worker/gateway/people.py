"""Who orders: a person's own token, one principal everywhere, and what each group may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from worker.config import Person
from worker.gateway import secrets
from worker.gateway.authentication import AuthError

ANYONE = frozenset({"viewer", "operator", "approver", "capacity-owners", "admin"})
OPERATORS = frozenset({"operator", "approver", "admin"})
APPROVERS = frozenset({"approver", "admin"})


class Right(Enum):
    """What is asked for, and the groups that may. A person can always stop, alone; starting again takes more."""

    READ = ("read", ANYONE)
    STOP = ("stop (hold, freeze)", ANYONE)
    OPERATE = ("resume, abort, assign, adopt and confirm", OPERATORS)
    THAW = ("thaw", OPERATORS)
    NARROW = ("narrow the policy", OPERATORS)
    WIDEN = ("widen the policy", APPROVERS)
    VOTE = ("vote", ANYONE)
    """Whether the vote counts is the approval's own rule, copied from the policy when it was asked for."""

    def __init__(self, words: str, groups: frozenset[str]) -> None:
        self.words = words
        self.groups = groups


@dataclass(frozen=True, slots=True)
class Principal:
    id: str
    name: str
    groups: tuple[str, ...]
    via: str = field(default="", compare=False)
    """By what way the request came, as the gateway itself knows it: `api`, `cli`, `console`, `slack`."""

    def by(self, via: str) -> Principal:
        return replace(self, via=via)

    def may(self, right: Right) -> bool:
        # A group that only the policy knows (an approval's own voters) may read, stop and vote.
        return right.groups is ANYONE or not right.groups.isdisjoint(self.groups)

    def require(self, right: Right) -> None:
        if self.may(right):
            return
        needed = ", ".join(sorted(right.groups))
        raise AuthError(403, f"{self.id} may not {right.words}; it takes one of the groups {needed}")


class People:
    def __init__(self, people: Iterable[Person]) -> None:
        known = list(people)
        self._keys = [
            (
                secrets.token_digest(person.token, f"person {person.id}"),
                Principal(person.id, person.name, person.groups),
            )
            for person in known
        ]
        self._at_proxy = {one.login or one.id: Principal(one.id, one.name, one.groups) for one in known}
        self._in_slack = {
            (person.slack.team, person.slack.user): Principal(person.id, person.name, person.groups)
            for person in known
            if person.slack
        }

    def in_slack(self, team: str, user: str) -> Principal | None:
        """Of a request that Slack has signed; None for whoever isn't mapped."""
        return self._in_slack.get((team, user))

    def sign_in(self, authorization: str) -> Principal:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthError(401, "sign in with your own token: `Authorization: Bearer ...`")
        return self.holder(token.strip())

    def holder(self, token: str) -> Principal:
        """Whose token it is. Raises `AuthError`."""
        found = None
        for digest, principal in self._keys:
            if secrets.matches(token, digest):
                found = principal
        if found is None:
            raise AuthError(401, "no person has this token")
        return found

    def named(self, id: str) -> Principal | None:
        return next((principal for _, principal in self._keys if principal.id == id), None)

    def fingerprint(self, id: str) -> bytes:
        """Changes with the person's token; empty for nobody."""
        return next((digest for digest, principal in self._keys if principal.id == id), b"")

    def at_proxy(self, login: str) -> Principal | None:
        """Whom a trusted proxy means; None for whoever isn't mapped."""
        return self._at_proxy.get(login)
