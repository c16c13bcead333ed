"""What a reply proposes. Words are never facts: whatever is read here only tells a person where to look.

Quotes of what we wrote, signatures and automatic replies are set aside first. A sentence that denies, asks, promises
or supposes proposes nothing, and none does beside words of trouble that goes on, of exceptions or of corrections. What
isn't understood, in whatever language, is for a person to read. What only looks automatic may be a person's word all
the same, sent by a help desk: it claims nothing, and isn't kept from people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from medevac.model import Model

MOST_READ = 20_000
"""Characters of a reply that are looked at."""
MOST_QUOTED = 300


class Proposal(StrEnum):
    NOTHING = "nothing"
    """An automatic reply, or nothing but our own words."""
    READ = "read"
    """A person must read it."""
    ANSWER = "answer"
    """They ask something."""
    REPLACED = "replaced"
    """They say that the machine or a part was replaced."""
    REPAIRED = "repaired"
    """They say that it works again, or was booted."""
    REFUSED = "refused"
    """They say that they won't do it."""

    @property
    def claims_done(self) -> bool:
        return self in (Proposal.REPLACED, Proposal.REPAIRED)


class Reading(Model):
    proposal: Proposal
    quote: str = ""


_AUTOMATIC_HEADERS = {
    "auto-submitted": re.compile(r"^auto-(?:replied|notified)", re.IGNORECASE),
    "x-autoreply": re.compile(r"."),
    "x-autorespond": re.compile(r"."),
    "precedence": re.compile(r"auto[_-]?reply", re.IGNORECASE),
}
_BY_A_DESK_HEADERS = {
    "auto-submitted": re.compile(r"^(?!no\b)", re.IGNORECASE),
    "x-auto-response-suppress": re.compile(r"\ball\b", re.IGNORECASE),
    "precedence": re.compile(r"bulk|junk|list", re.IGNORECASE),
}
_AUTOMATIC = re.compile(
    r"out of (the )?office|automatic(ally generated)? (reply|response|message|email)|auto[- ]?reply"
    r"|abwesenheitsnotiz|automatische antwort|nicht im büro|absence du bureau|réponse automatique|fuera de la oficina"
    r"|respuesta automática|fuori sede|risposta automatica|afwezig|自動返信|自动回复|不在",
    re.IGNORECASE,
)
_BY_A_DESK = re.compile(
    r"do not reply to this (e-?mail|message)|thank you for (contacting|your (request|e-?mail|message))"
    r"|(request|case|ticket) (\S{1,40} )?has been (received|created|opened|registered|logged)"
    r"|we (have )?received your (request|case|e-?mail)",
    re.IGNORECASE,
)
"""Of receipts, and of people who are polite."""
MOST_OF_A_RECEIPT = 400
"""Characters of one that says nothing else."""
_QUOTE_BEGINS = re.compile(
    r"^\s*(?:-{2,}\s*(?:original message|ursprüngliche nachricht|message d'origine|mensaje original|forwarded message)"
    r"|_{8,}|on .{4,120}\bwrote:\s*$|am .{4,120}\bschrieb\b.*:\s*$|le .{4,120}\ba écrit\s*:\s*$"
    r"|el .{4,120}\bescribió:\s*$"
    r"|\*{0,2}(?:from|von|de|发件人|差出人)\*{0,2}\s*:.*(?:@|\b(?:sent|date|to|gesendet|datum|an|envoyé"
    r"|enviado)\*{0,2}\s*:))",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"^-- ?$")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")

_REPLACED = re.compile(
    r"\b(?:has|have|was|were|been|is|are|we|i|they|technicians?|engineers?|now)\b[^.!?]{0,60}"
    r"\b(?:replaced|swapped(?: out)?|exchanged|rma'?d)\b"
    r"|\breplacement (?:is |was |has been )?(?:done|complete[d]?|finished)\b"
    r"|^\s*(?:replaced|swapped|exchanged)\b",
    re.IGNORECASE,
)
_REPAIRED = re.compile(
    r"\b(?:has|have|was|were|been|is|are|we|i|now)\b[^.!?]{0,60}"
    r"\b(?:repaired|fixed|resolved|rebooted|restarted|reseated|back (?:up|online|in service)|healthy|operational)\b"
    r"|^\s*(?:repaired|fixed|resolved|rebooted|reseated)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\b(?:cannot|can't|can not|unable to|won't|will not|not able to|decline to)\b[^.!?]{0,60}"
    r"\b(?:replace|repair|rma|exchange|swap|honou?r|accept)\b|\bout of warranty\b|\bnot (?:covered|eligible|entitled)\b"
    r"|\b(?:request|rma|claim|replacement) (?:is|was|has been) (?:declined|denied|rejected|refused)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:not|no|never|nor|neither|without|cannot|unable|fail(?:ed|s)?|hasn|haven|wasn|isn|aren|weren|won|don|doesn"
    r"|didn|couldn|yet|if|unless|until|once|when|whether|before|will|would|shall|should|could|may|might|must|can"
    r"|going to|to be|need(?:s|ed)?|schedul(?:e|ed|ing)|plan(?:ned|ning)?|pending|await(?:ing)?|order(?:ed)?"
    r"|expect(?:ed)?|request(?:ed|ing)?|please|tomorrow|soon|recommend(?:ed)?|propos(?:e|ed)|suggest(?:ed)?|being"
    r"|in progress|instead of|partially|nothing|nobody|none|still|down|broken|previous(?:ly)?"
    r"|(?:an)?other (?:customer|host|machine|node|server|rack|ticket|case)|last (?:week|month|year)"
    r"|almost|nearly|hardly|barely|scarcely|rarely|seldom|supposed(?:ly)?|alleged(?:ly)?|apparently|reportedly|probably"
    r"|perhaps|maybe|only|(?:was|were|is|are) to|had to"
    r"|doubt(?:s|ed|ful)?|false(?:ly)?|mistake(?:n|nly)?|wrong(?:ly)?|lied|wait(?:s|ing)?|however|but|except|though"
    r"|although|despite|unlike|kindly|require[sd]?|seem(?:s|ed|ingly)?|appear(?:s|ed)?|looks? (?:like|to)"
    r"|assum\w*|presum\w*"
    r"|believ\w*|think|thought|hop(?:e|es|ed|ing|efully)|guess|suspect\w*|understand|according to|claim(?:s"
    r"|ed)?|sa(?:id|ys)"
    r"|told|ask(?:s|ed|ing)?|wonder\w*|confirm (?:if|whether)|verify (?:if|whether)|temporar(?:y|ily)"
    r"|workaround|for now"
    r"|interim|mitigat\w*|intermittent\w*|sporadic\w*|flapp\w*|sometimes|occasional\w*|theor(?:y|etically)|virtually"
    r"|as good as|close to|about to|tonight|next|upcoming|eta|en route|dispatch\w*|shipp?(?:ed|ing)|on (?:its"
    r"|the|their) way"
    r"|due (?:on|by|in)|ago|back in|last time|different|similar|some|most|half|part(?:s)? of|several|few"
    r"|one of|first of"
    r"|duplicate|template|example|draft|simulat\w*"
    r"|(?:in|from) (?:the|our) (?:database|inventory|cmdb|system|records?|plan|calendar|schedule)"
    r"|(?:re)?started (?:the |an? |our )?(?:diag\w*|investigat\w*|process|tests?|procedure|case|ticket|search"
    r"|analysis|rma)"
    r"|(?:exchanged|swapped) (?:\w+ )?(?:e-?mails?|messages?|views|notes|shifts|words|ideas|contacts?))\b|n't\b|n’t\b",
    re.IGNORECASE,
)
"""Any of these in a sentence, and it claims nothing: better a person reads one reply too many."""
_TROUBLE = re.compile(
    r"\b(?:same|new|further|more|another|different|similar|identical|other) (?:\w+ ){0,2}"
    r"(?:errors?|issues?|problems?|faults?|symptoms?|failures?|xids?|results?|behaviou?r|state|story)\b"
    r"|\b(?:persist\w*|remain\w*|reoccur\w*|recur\w*|reappear\w*|return(?:s|ed)|continu(?:e|es|ed|ing)|ongoing"
    r"|unchanged|unresolved|unsuccessful\w*|unfortunately|sadly|regret\w*|unreachable|unresponsive|unhealthy"
    r"|hangs?|hung"
    r"|stuck|dead|crash\w*|throw(?:s|ing)|comes? back|came back|to no avail|in vain)\b"
    r"|\b(?:fail|happen|occur|appear|drop|fell|fall|broke|shows?|showed|seen?|saw|went)\w*\b[^.!?]{0,40}\bagain\b"
    r"|\bno (?:change|effect|improvement|difference|luck|success|longer)\b|\bwithout success\b"
    r"|\b(?:apart from|aside from|other than|except\w*|exclud\w*|barring|save for|besides|all but|short of|minus)\b"
    r"|\b(\d+) (?:out )?of (?!\1\b)\d+\b|\b\d+/\d+ (?:\w+ )?(?:gpus?|cards?|links?|nodes?)\b|\bpart(?:ly|ial\w*)\b"
    r"|\b(?:inactiv\w*|automatic\w*|auto[- ]?(?:clos|resolv|complet|generat)\w*|lack of|stale|expir\w*)\b"
    r"|\b(?:not|never|cannot|unable)\b|n't\b|n’t\b"
    r"|\b(?:oops|sorry|apolog(?:y|ies|i[sz]e)|correction|erratum|actually|in fact|turn(?:s|ed) out"
    r"|scratch that|strike that"
    r"|disregard|ignore|retract\w*|withdr[ae]w\w*|second thoughts?|second look|meant|confus\w*"
    r"|mix(?:ed)?[- ]?up|mis\w*ident\w*"
    r"|misread|misunderst\w*|neighbou?r\w*|rolled? back|revert\w*|undone|took it out|taken out again)\b",
    re.IGNORECASE,
)
"""Any of these anywhere, and no sentence claims anything: trouble that goes on, a rest that is left out, a program that
closes tickets, a word taken back."""
_AFTERTHOUGHT = re.compile(r"^\W*(?:update|edit|p\.?\s?s\.?|addendum|nb|n\.b\.)\s*(?:\d[^:]{0,20})?:", re.IGNORECASE)
"""What a later sentence begins with that may take back an earlier one."""
_POLITE = re.compile(
    r"\b(?:do not|don't|don’t) hesitate\b|\b(?:sorry|apologi[sz]e|apologies) (?:again )?for (?:the |any "
    r"|this )?(?:long |late )?"
    r"(?:delay|wait|inconvenience|reply|response)\b|\bno (?:further|other) (?:action|steps?|work) (?:is "
    r"|are )?(?:needed|required)\b",
    re.IGNORECASE,
)
"""Says nothing of the machine, whatever its words."""
_ASKS = re.compile(
    r"\b(?:is|are|was|were|has|have|had|did|does|do) (?:it|they|this|there|everything|anyone|anybody|we|you|i)\b"
    r"|(?:^|[:;,–—-] *)(?:is|are|was|were|has|have|had|did|does|do|any|which|what|who|why|how|where)\b"
    r" (?:the|your|our|my|a|an|any|that|these|those|all|one|news|update)\b",
    re.IGNORECASE,
)
"""A question by the order of its words, where nobody set the mark."""
_OF_A_TICKET = re.compile(
    r"\b(?:ticket|case|request|incident|order|task|status|thread|conversation)\b[^.!?]{0,60}"
    r"\b(?:resolved|fixed|closed|solved|completed?|repaired)\b",
    re.IGNORECASE,
)
"""Of the paper, not of the machine."""
_FOREIGN_DENIAL = re.compile(
    r"\b(?:nicht|kein\w*|noch|pas|jamais|aucun\w*|todavía|aún|niet|geen|não|non)\b", re.IGNORECASE
)
_BARE_DENIAL = re.compile(
    r"^\W*(?:not|no|nope|nah|never|nicht|nein|non|niet|nee|não)(?:\s+(?:yet|really|at all|true|so))?\W*$", re.IGNORECASE
)
"""A sentence that only takes back the one before it."""

_OTHER_SCRIPT = re.compile(r"[\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufdff\ufe70-\ufefc\U00020000-\U0003ffff]")
"""Letters of languages in which nobody here would see a denial."""
_ABOUT_IT = re.compile(
    r"parts?\b|replac|swap|exchang|repair|fix|resolv|done|ausgetauscht|remplac|reemplaz|yet|still|noch", re.IGNORECASE
)


def read(text: str, ours: str = "", headers: Mapping[str, str] | None = None, subject: str = "") -> Reading:
    """`ours`: all that we have written in the ticket, so that its echo isn't taken for news."""
    if automatic(text, headers or {}, subject):
        return Reading(proposal=Proposal.NOTHING, quote=_short(text))
    fresh = own_words(text, ours)
    if not fresh:
        return Reading(proposal=Proposal.NOTHING, quote=_short(text))
    sentences = [sentence.strip() for sentence in _SENTENCE.split(fresh) if sentence.strip()]
    for sentence in sentences:
        if _REFUSED.search(sentence):
            return Reading(proposal=Proposal.REFUSED, quote=_short(sentence))
    desk = by_a_desk(fresh, headers or {})
    weighed = [_POLITE.sub("", sentence) for sentence in sentences]
    doubted = bool(_OTHER_SCRIPT.search(fresh)) or any(map(_denies, weighed)) or any(map(_TROUBLE.search, weighed))
    doubted = doubted or any(map(_AFTERTHOUGHT.match, sentences[1:]))
    for pattern, proposal in ((_REPLACED, Proposal.REPLACED), (_REPAIRED, Proposal.REPAIRED)):
        for n, sentence in enumerate(sentences):
            # One sentence that denies leaves the others doubtful too: "We replaced the fan. The GPU not yet."
            if doubted or not pattern.search(sentence) or _claims_nothing(weighed[n]):
                continue
            if not _wrapped_quote(sentences[max(0, n - 1) : n + 2], sentence, ours):
                return Reading(proposal=Proposal.READ if desk else proposal, quote=_short(sentence))
    asking = next((sentence for sentence in sentences if sentence.rstrip().endswith(("?", "？"))), "")
    if asking:
        return Reading(proposal=Proposal.ANSWER, quote=_short(asking))
    receipt = desk and len(fresh) <= MOST_OF_A_RECEIPT
    return Reading(proposal=Proposal.NOTHING if receipt else Proposal.READ, quote=_short(fresh))


def automatic(text: str, headers: Mapping[str, str], subject: str = "") -> bool:
    """By its headers; else by its subject, or its first lines where nothing else is said."""
    if _said_by(headers, _AUTOMATIC_HEADERS):
        return True
    if any(name.lower() == "return-path" and value.strip() == "<>" for name, value in headers.items()):
        return True
    return bool(_AUTOMATIC.search(subject)) or bool(_AUTOMATIC.search(own_words(text)[:400]))


def by_a_desk(fresh: str, headers: Mapping[str, str]) -> bool:
    """Sent by a help desk's program, which may have written it or only carry a person's words."""
    return _said_by(headers, _BY_A_DESK_HEADERS) or bool(_BY_A_DESK.search(fresh[:400]))


def _said_by(headers: Mapping[str, str], patterns: Mapping[str, re.Pattern[str]]) -> bool:
    low = {name.lower(): value for name, value in headers.items()}
    return any(name in low and pattern.search(low[name]) for name, pattern in patterns.items())


def own_words(text: str, ours: str = "") -> str:
    """Without quoted lines, what stands below a quote's heading, the signature, and lines that we wrote ourselves."""
    known = {_plain(line) for line in ours.splitlines() if len(_plain(line)) > 3}
    kept: list[str] = []
    lines = text[:MOST_READ].splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        wrapped = f"{line[:200]} {following[:200]}"
        if any(_QUOTE_BEGINS.match(heading) for heading in (line, wrapped)) or _SIGNATURE.match(line):
            break
        if line.lstrip().startswith((">", "|")) or line.startswith("bq. ") or _plain(line) in known:
            continue
        kept.append(line)
    return "\n".join(kept).strip()


def _wrapped_quote(around: Sequence[str], sentence: str, ours: str) -> bool:
    """Whether it and a neighbour are words of ours that a quote has wrapped elsewhere."""
    whole = f" {_plain(ours[: 10 * MOST_READ])} "
    n = around.index(sentence)
    pairs = (around[max(0, n - 1) : n + 1], around[n : n + 2])
    return any(len(pair) == 2 and f" {_plain(' '.join(pair))} " in whole for pair in pairs)


def _claims_nothing(sentence: str) -> bool:
    return "?" in sentence or any(pattern.search(sentence) for pattern in (_UNSURE, _ASKS, _OF_A_TICKET))


def _denies(sentence: str) -> bool:
    denied = _UNSURE.search(sentence) or _FOREIGN_DENIAL.search(sentence)
    return bool(denied and _ABOUT_IT.search(sentence)) or bool(_BARE_DENIAL.search(sentence))


def _plain(line: str) -> str:
    return re.sub(r"\W+", " ", line.lower()).strip()


def _short(text: str) -> str:
    flat = " ".join(text[:MOST_READ].split())
    return flat if len(flat) <= MOST_QUOTED else flat[: MOST_QUOTED - 1] + "…"
