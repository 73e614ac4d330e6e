"""A decoded frame to the RGB picture a viewer would see: turned, square pixels, the size asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError

Picture = npt.NDArray[np.uint8]
Resize = Literal["crop", "fit", "whole"]
_SIDES_OF = 16  # pixels: what vision transformers cut pictures into


class Painter:
    """Makes pictures of one size. ``size`` is (height, width) or None for the video's own.

    "crop" scales the short side to the target and cuts the centre out; "fit" scales both sides, whatever the aspect
    becomes; "whole" keeps the aspect and gives the largest picture inside, sides multiples of 16. Keeps one scaler,
    because setting one up costs more than using it.
    """

    def __init__(self, size: tuple[int, int] | None = None, resize: Resize = "crop") -> None:
        from av.video.reformatter import Interpolation, VideoReformatter

        self._size, self._resize = size, resize
        # colour at full width: by default two neighbours share theirs, which changes CLIP's vectors by a cosine of .98
        self._how = Interpolation.BICUBIC | Interpolation.FULL_CHR_H_INT
        self._scaler: Any = VideoReformatter()
        self._native: tuple[int, int] | None = None

    def __call__(self, frame: Any, pixel_aspect: float = 1.0) -> Picture:
        """One PyAV frame as uint8 (H, W, 3)."""
        turned, rows, columns = _orientation(frame)
        width, height = max(1, round(frame.width * pixel_aspect)), frame.height  # as stored, with square pixels
        if self._size is None or self._resize == "whole":
            # a stream may change its size half-way; a batch may not
            self._native = self._native or _inside(self._size, *((width, height) if turned else (height, width)))
            want_h, want_w = self._native
            resize: Resize = "fit"
        else:
            (want_h, want_w), resize = self._size, self._resize
        box_w, box_h = (want_h, want_w) if turned else (want_w, want_h)  # the target before it is turned
        if resize == "crop":
            scale = max(box_w / width, box_h / height)
            scaled_w, scaled_h = max(box_w, round(width * scale)), max(box_h, round(height * scale))
        else:
            scaled_w, scaled_h = box_w, box_h
        picture: Picture = self._scaler.reformat(
            frame, width=scaled_w, height=scaled_h, format="rgb24", interpolation=self._how
        ).to_ndarray()
        top, left = (scaled_h - box_h) // 2, (scaled_w - box_w) // 2
        picture = picture[top : top + box_h, left : left + box_w]
        if turned:
            picture = picture.swapaxes(0, 1)
        return np.ascontiguousarray(picture[::rows, ::columns])


def _inside(size: tuple[int, int] | None, height: int, width: int) -> tuple[int, int]:
    """The height and width that a picture gets in a box ``size``, its aspect kept; its own where there is no box."""
    if size is None:
        return height, width
    scale = min(size[0] / height, size[1] / width)
    return tuple(  # type: ignore[return-value]
        min(most, max(_SIDES_OF, round(side * scale / _SIDES_OF) * _SIDES_OF))
        for side, most in ((height, size[0]), (width, size[1]))
    )


def _orientation(frame: Any) -> tuple[bool, int, int]:
    """What the display matrix asks for: whether rows and columns change places, then the step through the rows and
    through the columns, -1 for backwards."""
    try:
        data = frame.side_data["DISPLAYMATRIX"]
    except KeyError:
        return False, 1, 1
    # row-major 3x3 in 16.16 fixed point: a picture point (x, y) is shown at (a x + c y, b x + d y), y downwards
    a, b, _, c, d = np.frombuffer(bytes(data), dtype=np.int32)[:5].tolist()
    turned = abs(a) + abs(d) < abs(b) + abs(c)
    down, right = (b, c) if turned else (d, a)
    return turned, -1 if down < 0 else 1, -1 if right < 0 else 1


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The pixels an encoder needs for each of its vectors.

    A vector's clip is ``frames`` RGB pictures, ``fps`` of them a second, spread evenly around the middle of the
    vector's own second(s); with ``frames=1`` it is the picture in the middle. Pictures arrive as uint8 RGB of
    ``size`` = (height, width); ``resize`` says how a picture gets there (:class:`Painter`).
    """

    size: tuple[int, int]
    frames: int = 1
    fps: float = 1.0
    resize: Resize = "crop"

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise InputError(f"FrameSpec.size must be (height, width) in pixels, got {self.size}")
        if self.frames < 1 or not self.fps > 0:
            raise InputError(f"FrameSpec needs frames >= 1 and fps > 0, got {self.frames} and {self.fps}")

    def times_s(self, index: int, rate_hz: float) -> list[float]:
        """The seconds at which the pictures of vector ``index`` are taken (may fall outside the video: clamp)."""
        middle = (index + 0.5) / rate_hz
        first = middle - (self.frames - 1) / (2.0 * self.fps)
        return [first + i / self.fps for i in range(self.frames)]
