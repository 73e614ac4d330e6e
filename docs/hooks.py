"""Docstrings name things as Sphinx does (:func:`name`); on the pages the name alone stands."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):(?=<code>)")


def on_page_content(html: str, **_: Any) -> str:
    """The page without the roles."""
    return _ROLE.sub("", html)
