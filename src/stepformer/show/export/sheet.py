"""A contact sheet: a thumbnail a step, from its middle, with number, times and name, as PNG or JPEG.

What lies past the end of the video is cut or left out. A name that needs letters no font here has shows boxes.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from stepformer.errors import UsageError
from stepformer.show.export.options import Options, need_media_file
from stepformer.show.palette import step_colors
from stepformer.show.writing import clock_s, is_guess, one_line, stamp, step_name, within_video
from stepformer.timeline import Timeline

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg")
_GROUND, _INK, _SOFT, _EMPTY = "#ffffff", "#1b1d22", "#6a7080", "#e8e6e0"
_GAP, _MARGIN, _CAPTION, _TITLE = 18, 24, 46, 44  # pixels


def save(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """Writes the sheet; the format is that of the suffix."""
    from PIL.PngImagePlugin import PngInfo

    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a contact sheet is written as {', '.join(SUFFIXES)}, not as {path.suffix or 'no suffix'}")
    source = need_media_file(timeline, options, "a contact sheet")
    stamped = stamp(timeline)
    timeline, notes = within_video(timeline)
    pictures = step_pictures(source, timeline, options.thumb_width)
    sheet = draw_sheet(timeline, pictures, options)
    if path.suffix.lower() == ".png":
        info = PngInfo()
        info.add_text("Description", stamped)
        sheet.save(path, "PNG", pnginfo=info)
    else:
        sheet.save(path, "JPEG", quality=88)
    blank = [f"step {i + 1}: the video has no picture there" for i, found in enumerate(pictures) if found is None]
    return (*notes, *blank)


def step_pictures(source: Path, timeline: Timeline, width: int) -> list[Image | None]:
    """The picture in the middle of each step, ``width`` pixels wide; None where the video has none."""
    from PIL import Image

    from stepformer.media import VideoReader

    reader = VideoReader(source)
    height = max(2, round(width * reader.info.height / max(1, reader.info.width)))
    middles = [(step.start_s + step.end_s) / 2 for step in timeline]
    order = sorted(range(len(middles)), key=lambda i: middles[i])
    found: list[Image.Image | None] = [None] * len(middles)
    at = 0
    for batch in reader.frames_at([middles[i] for i in order], size=(height, width), resize="fit"):
        for picture in batch.pictures:
            found[order[at]] = Image.fromarray(picture)
            at += 1
    return found


def draw_sheet(timeline: Timeline, pictures: list[Image | None], options: Options) -> Image:
    """The sheet of these pictures, one a step."""
    from PIL import Image, ImageDraw

    wide = options.thumb_width
    tall = max((p.height for p in pictures if p is not None), default=round(wide * 9 / 16))
    count = len(timeline)
    columns = min(options.columns or max(1, min(5, math.ceil(math.sqrt(max(1, count))))), max(1, count))
    rows = math.ceil(count / columns)
    size = (
        2 * _MARGIN + columns * wide + (columns - 1) * _GAP,
        2 * _MARGIN + _TITLE + rows * (tall + _CAPTION) + max(0, rows - 1) * _GAP,
    )
    sheet = Image.new("RGB", size, _GROUND)
    draw = ImageDraw.Draw(sheet)
    title = one_line(options.title or PurePath(timeline.video).name) or "Steps"
    _write(draw, (_MARGIN, _MARGIN), f"{title}   {count} steps", 20, _INK, size[0] - 2 * _MARGIN)
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        left = _MARGIN + (i % columns) * (wide + _GAP)
        top = _MARGIN + _TITLE + (i // columns) * (tall + _CAPTION + _GAP)
        picture = pictures[i]
        draw.rectangle((left, top, left + wide - 1, top + tall - 1), fill=_EMPTY)
        if picture is not None:
            sheet.paste(picture, (left, top + (tall - picture.height) // 2))
        draw.rectangle((left, top + tall, left + wide - 1, top + tall + 4), fill=color)
        number = str(i + 1)
        badge = 14 + 9 * len(number)
        draw.rounded_rectangle((left + 8, top + 8, left + 8 + badge, top + 32), 6, fill=color)
        draw.text((left + 8 + badge / 2, top + 20), number, fill=_INK, font=_font(15, number), anchor="mm")
        mark = " (guess)" if is_guess(step) else ""
        _write(draw, (left, top + tall + 8), step_name(step, i) + mark, 15, _INK, wide)
        when = f"{clock_s(int(step.start_s))} – {clock_s(int(step.end_s))}"
        _write(draw, (left, top + tall + 28), when, 12, _SOFT, wide)
    return sheet


def _write(draw: Any, at: tuple[int, int], text: str, size: int, color: str, wide: int) -> None:
    """One line of text, cut with an ellipsis where it is wider than ``wide`` pixels."""
    font = _font(size, text)
    if draw.textlength(text, font=font) > wide:
        low, high = 0, len(text)  # the longest beginning that fits
        while low < high:
            middle = (low + high + 1) // 2
            fits = draw.textlength(text[:middle].rstrip() + "…", font=font) <= wide
            low, high = (middle, high) if fits else (low, middle - 1)
        text = text[:low].rstrip() + "…"
    draw.text(at, text, fill=color, font=font)


def _font(size: int, text: str) -> Any:
    """DejaVu (it comes with Matplotlib), or the first font of the system that has every letter it lacks."""
    from PIL import ImageFont

    return ImageFont.truetype(_font_file(frozenset(text)), size)


@cache
def _font_file(letters: frozenset[str]) -> str:
    from matplotlib import font_manager, get_data_path
    from matplotlib.ft2font import FT2Font

    ours = str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    wanted = {ord(letter) for letter in letters}
    if wanted <= set(FT2Font(ours).get_charmap()):
        return ours
    for font in font_manager.fontManager.ttflist:
        try:
            # a bitmap font (colour emoji) cannot be drawn at any size
            if "Emoji" not in font.name and wanted <= set(FT2Font(font.fname).get_charmap()):
                return str(font.fname)
        except (OSError, RuntimeError):
            continue
    return ours
