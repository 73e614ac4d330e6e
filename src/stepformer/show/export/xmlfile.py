"""XML text with its provenance in a comment, written and read with the standard library."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from stepformer.errors import InputError
from stepformer.show.writing import unstamp

_COMMENT = re.compile(r"<!-- (\{.*?\}) -->")


def document(root: ElementTree.Element, stamped: str, doctype: str = "") -> str:
    """The whole document, indented; ``stamped`` is a line without ``--``."""
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}<!-- {stamped} -->\n{body}\n'


def parse_xml(text: str, source: str) -> ElementTree.Element:
    """The root element; an :class:`InputError` where it is not XML."""
    try:
        return ElementTree.fromstring(text.removeprefix("\ufeff").encode("utf-8"))
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise InputError(f"{source} is not XML: {error}") from None


def comment_stamp(text: str) -> dict[str, Any] | None:
    """The provenance in the comment :func:`document` wrote."""
    match = _COMMENT.search(text)
    return unstamp(match.group(1)) if match else None
