"""XML as (path, value) pairs, for what `nvidia-smi -q -x` prints.

No entity but XML's own five is ever expanded and no document type is ever fetched: a declaration of an entity is
refused before it can grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.parsers import expat

from medevac.events.parsing import ParseError

MAX_ELEMENTS = 100_000
MAX_DEPTH = 12
MAX_NAME = 64

Element = tuple[tuple[str, ...], Mapping[str, str], str]
"""Path of names from the root, attributes, and the text of an element without children."""


def elements(text: str) -> list[Element]:
    """Leaves and parents in document order of their ends."""
    found: list[Element] = []
    path: list[str] = []
    attributes: list[Mapping[str, str]] = []
    texts: list[list[str]] = []

    def start(name: str, given: dict[str, str]) -> None:
        if len(path) >= MAX_DEPTH:
            raise ParseError(f"XML is nested deeper than {MAX_DEPTH} levels")
        if len(name) > MAX_NAME:
            raise ParseError(f"XML has an element whose name is longer than {MAX_NAME} characters")
        path.append(name)
        attributes.append(given)
        texts.append([])

    def end(name: str) -> None:
        if len(found) >= MAX_ELEMENTS:
            raise ParseError(f"XML has more than {MAX_ELEMENTS} elements")
        found.append((tuple(path), attributes.pop(), "".join(texts.pop()).strip()))
        path.pop()

    def data(piece: str) -> None:
        if texts:
            texts[-1].append(piece)

    def refuse(*_: object) -> int:
        raise ParseError("XML declares an entity, which is refused")

    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as e:
        raise ParseError(f"XML is not well-formed: line {e.lineno}: {expat.ErrorString(e.code)}") from None
    except (ValueError, UnicodeError):
        raise ParseError("XML is not well-formed: its text can't be decoded") from None
    return found
