"""docs/SECURITY.md states the limits that the code has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from stepformer.base import guard, many
from stepformer.cli.over_videos import LIMITS
from stepformer.encoders import captions, reading
from stepformer.media import container
from stepformer.narration.readers import structured
from stepformer.show import viewer
from stepformer.timeline import JSON_DEPTH, LONGEST_S

TEXT = re.sub(r"\s+", " ", (Path(__file__).parents[1] / "docs" / "SECURITY.md").read_text())


def test_the_limits_of_the_docs_are_those_of_the_code():
    apart = inspect.signature(guard.in_process).parameters
    assert guard.XML_DEPTH == JSON_DEPTH and guard.ARRAY_BYTES == 8 << 30 and many._MEMORY_BYTES == 16 << 30
    assert (captions._SILENT_S, captions._LONGEST_S, LIMITS["silence_s"]) == (3600, 24 * 3600, 1800)
    for sentence in (
        f"subtitles) | {guard.TEXT_BYTES >> 20} MiB; XML {guard.XML_BYTES >> 20} MiB |",
        f"nesting of JSON and XML | {JSON_DEPTH} levels",
        f"may unpack to {guard.EXPANSION} times its size, or {guard.FREE_BYTES >> 20} MiB |",
        f"an array | {guard.ARRAY_BYTES >> 30} GiB,",
        f"a time or duration | {LONGEST_S / 86_400:g} days |",
        f"beyond 60 s and {container.BYTES_PER_S} bytes per second |",
        f"its size in bytes plus 10,000; {container._WAIT_S:g} s of waiting for each |",
        f"| {reading.MOST_VECTORS:,}, each the mean",
        f"the captions of one video | {structured._MAX_ENTRY >> 20} million letters |",
        "the length of captions | an hour after the last caption, and a day |",
        f"(`--embed`) | {guard.TEXT_BYTES >> 20} MiB |",
        f"text alone: {guard.PIPE_BYTES >> 20} MiB, {guard.PIPE_S:g} s without a byte |",
        f"process of its own: {apart['time_s'].default:g} s, {apart['memory_bytes'].default >> 30} GiB |",
        f"{viewer._Handler.timeout} s for all of it, and for each {viewer._CHUNK_BYTES >> 10} KiB of the answer |",
        f"needs more than {many._MEMORY_BYTES >> 30} GiB (or four fifths of the machine)",
    ):
        assert sentence in TEXT, sentence
