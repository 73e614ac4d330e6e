"""Clock times as subtitle files write them."""

from __future__ import annotations

import re

# 1:02:03.456, 02:03,456, 2:03; a fraction of any length, a comma or a dot
CLOCK = r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})(?:[.,:;](\d{1,9}))?"
_CLOCK = re.compile(rf"\s*(-?)\s*{CLOCK}\s*$", re.ASCII)
_LOOSE_CLOCK = re.compile(
    r"\s*(-?)\s*(?:(\d{1,4})\s*:\s*)?(\d{1,4})\s*:\s*(\d{1,2})(?:\s*[.,:;]\s*(\d{1,9}))?\s*$", re.ASCII
)


def seconds(text: str) -> float | None:
    """Seconds of a clock time such as ``01:02:03,456``; None if it is none."""
    found = _CLOCK.match(text) or _LOOSE_CLOCK.match(text)
    if found is None:
        return None
    sign, hours, minutes, secs, fraction = found.groups()
    value = int(hours or 0) * 3600 + int(minutes) * 60 + int(secs) + (float(f"0.{fraction}") if fraction else 0.0)
    return -value if sign else value


def arrow(line: str) -> tuple[float, float] | None:
    """Start and end of a ``00:01,000 --> 00:02,000`` line (settings behind it are ignored); None if malformed."""
    left, found, right = line.partition("-->")
    if not found:
        return None
    # settings follow the end time after white space: "00:02.000 align:start position:0%"
    start_s = seconds(left)
    end_s = seconds(right)
    if end_s is None:
        for count in (1, 2):
            end_s = seconds(" ".join(right.split()[:count]))
            if end_s is not None:
                break
    return None if start_s is None or end_s is None else (start_s, end_s)
