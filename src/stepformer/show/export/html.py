"""One page, one file: the video, and its steps as a bar and as a list that seeks.

Nothing is fetched from anywhere: style, script and thumbnails are inside, and the page says so to the browser (its
content security policy). The video stays a file beside the page, named by a relative path, unless ``embed`` puts it
inside. Works from a folder without a server, by keyboard, in the dark, and, as links to the seconds, without script.
"""

from __future__ import annotations

import base64
import io
import json
import mimetypes
import os
from html import escape
from pathlib import Path, PurePath
from urllib.parse import quote

from stepformer.base.guard import read_bytes
from stepformer.base.progress import clock
from stepformer.show.export import Options, Rendered, media_file
from stepformer.show.writing import (
    bare_name,
    is_guess,
    lanes,
    one_line,
    spans,
    stamp,
    step_colors,
    step_name,
    step_names,
    ticks,
)
from stepformer.timeline import Step, Timeline

_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "media-src * data: blob: file:; base-uri 'none'; form-action 'none'"
)
_FIND_FROM = 9  # steps from which a search field is worth its place
_BIG_BYTES = 50 * 2**20


def render_html(timeline: Timeline, options: Options) -> Rendered:
    """The whole page."""
    length_s = timeline.duration_s or max((step.end_s for step in timeline), default=0.0)
    source, source_notes = _source(timeline, options)
    thumbs, thumb_notes = _thumbnails(timeline, options)
    title = one_line(options.title or PurePath(timeline.video).name) or "Steps"
    data = {
        "length_s": length_s,
        "steps": [[step.start_s, step.end_s] for step in timeline],
        "names": step_names(timeline),
    }
    count = f"{len(timeline)} step" + ("" if len(timeline) == 1 else "s")
    parts = {
        "policy": escape(_POLICY),
        "title": escape(title),
        "style": (_HERE / "page.css").read_text(encoding="utf-8"),
        "script": (_HERE / "page.js").read_text(encoding="utf-8"),
        # "<" cannot end the script element early when it is written as JSON's escape
        "data": json.dumps(data).replace("<", "\\u003c"),
        "summary": f"{count} in {clock(length_s)}",
        "source": f' src="{escape(source)}"' if source else "",
        # until it plays, the video shows its first step instead of a black box
        "poster": "".join(f' poster="{thumb}"' for thumb in thumbs[:1] if thumb),
        "file": escape(PurePath(timeline.video).name),
        "length": f"{length_s:.3f}",
        "segments": _segments(timeline, length_s),
        "ticks": _ticks(length_s),
        "find": _FIND if len(timeline) >= _FIND_FROM else "",
        "bare": "" if any(thumbs) else " bare",
        "steps": _steps(timeline, thumbs, source) or '<li class="none">No steps were found in this video.</li>',
        "stamp": escape(json.dumps(json.loads(stamp(timeline)), indent=2, ensure_ascii=False)),
    }
    return Rendered((_HERE / "page.html").read_text(encoding="utf-8").format(**parts), (*source_notes, *thumb_notes))


def _source(timeline: Timeline, options: Options) -> tuple[str, list[str]]:
    """The address of the video as the page names it, and notes."""
    found = media_file(timeline, options)
    if found is None:
        name = options.video or timeline.video
        if options.video and name.startswith(("http://", "https://")):
            return name, []  # asked for by the page's author; a timeline's own word would have it call home
        note = f"{name!r} was not found; the page looks for it in its own folder, and asks for it otherwise"
        return _address(PurePath(name).name), [note]
    if options.embed:
        size = found.stat().st_size
        kind = mimetypes.guess_type(found.name)[0] or "video/mp4"
        note = f"the page holds {size / 2**20:.0f} MiB of video; browsers open such pages slowly"
        return _data_address(kind, read_bytes(found)), [note] if size > _BIG_BYTES else []
    folder = options.target.resolve().parent if options.target else Path.cwd()
    try:
        return _address(os.path.relpath(found.resolve(), folder)), []
    except ValueError:  # another drive
        return found.resolve().as_uri(), []


def _address(path: str) -> str:
    """A relative path as a relative address; bytes that are no UTF-8 on disk stay the bytes they are."""
    return quote(path.replace(os.sep, "/"), errors="surrogateescape")


def _thumbnails(timeline: Timeline, options: Options) -> tuple[list[str], list[str]]:
    """A small JPEG per step as a data address; empty strings where the video is not here or cannot be read."""
    found = media_file(timeline, options)
    nothing = [""] * len(timeline)
    if found is None or not len(timeline):
        return nothing, []
    from PIL import Image

    from stepformer.errors import StepFormerError
    from stepformer.show.export.pictures import step_pictures

    try:
        pictures = step_pictures(found, timeline, 208)
    except StepFormerError as error:
        return nothing, [f"no thumbnails: {error}"]
    out = []
    for picture in pictures:
        file = io.BytesIO()
        if picture is not None:
            Image.fromarray(picture).save(file, "JPEG", quality=72)
        out.append("" if picture is None else _data_address("image/jpeg", file.getvalue()))
    return out, []


def _data_address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _segments(timeline: Timeline, length_s: float) -> str:
    depth = lanes(spans(timeline, 1000))
    tall = 100 / (max(depth, default=0) + 1)
    out = []
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        left, wide = _percent(step.start_s, length_s), _percent(step.duration_s, length_s)
        place = f"left:{left};width:{wide};top:{depth[i] * tall:.2f}%;height:{tall:.2f}%;--c:{color}"
        part = step.duration_s / length_s if length_s else 0.0
        text = f"<b>{i + 1}</b>" if part > 0.018 else ""
        text += f"<span>{escape(step_name(step, i))}</span>" if part > 0.08 else ""
        out.append(f'<div class="seg" style="{place}">{text}</div>')
    return "".join(out)


def _steps(timeline: Timeline, thumbs: list[str], source: str) -> str:
    out = []
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        image = f'<img src="{thumbs[i]}" alt="" loading="lazy">' if thumbs[i] else ""
        when = f"{clock(step.start_s)} – {clock(step.end_s)}"
        score = f' title="score {step.score:.2f}"' if step.score is not None else ""
        # a data address twice would double the page, so an embedded video has no links for readers without script
        link = "" if source.startswith("data:") else f'<a href="{escape(source)}#t={step.start_s:.3f}">{when}</a>'
        out.append(
            f'<li><button type="button" class="step" style="--c:{color}"{score}>'
            f'<span class="thumb">{image}<span class="num">{i + 1}</span></span>'
            f'<span class="name" dir="auto">{escape(bare_name(step, i))}</span>'
            f'<span class="when">{when}</span>{_guess(step)}<span class="fill"></span></button>'
            f"{f'<noscript>{link}</noscript>' if link else ''}</li>"
        )
    return "\n".join(out)


_WHY_A_GUESS = {
    "spoken": "This was said in the video; it may not be the name of this step.",
    "seen": "This is the phrase of a list that best fits the frames; it was not said in the video.",
}


def _guess(step: Step) -> str:
    if not is_guess(step):
        return ""
    similarity = step.meta.get("name_score")
    number = f" {similarity:.2f}" if isinstance(similarity, int | float) else ""
    note = _WHY_A_GUESS.get(str(step.meta.get("source")), "This name is not sure.")
    return f'<span class="guess" title="{note}">guess{number}</span>'


def _ticks(length_s: float) -> str:
    if length_s <= 0:
        return ""
    marks = [second for second in ticks(length_s, 9) if second <= length_s * 0.97]
    return "".join(f'<span style="left:{_percent(s, length_s)}">{clock(s)}</span>' for s in marks)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}%" if whole > 0 else "0%"


_FIND = '<input class="find" id="find" type="search" placeholder="Find a step" aria-label="Find a step">'
