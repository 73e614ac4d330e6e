"""JSON: the timeline itself, as ``Timeline.to_json`` has it; its schema is ``timeline.schema.json`` beside this file.

The one format that keeps everything, exactly, whatever the steps are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepformer.show.export.options import Options, Rendered
from stepformer.timeline import Timeline

SCHEMA_PATH = Path(__file__).with_name("timeline.schema.json")


def schema() -> dict[str, Any]:
    """The published JSON schema (draft 2020-12) of a timeline."""
    value: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    return value


def render(timeline: Timeline, options: Options) -> Rendered:
    """The timeline as indented JSON."""
    return Rendered(timeline.to_json() + "\n")


def parse(text: str, source: str) -> Timeline:
    """The timeline, equal to the one written."""
    return Timeline.from_json(text)
