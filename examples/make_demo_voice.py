"""Makes the voice of ``stepformer demo``: its lines, spoken by espeak-ng (a Debian package), as one Opus file.

python examples/make_demo_voice.py src/stepformer/cli/demo_voice.ogg
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np

from stepformer.media import read_audio
from stepformer.media.audio import SAMPLE_RATE_HZ

LENGTH_S = 21.0
# what a narrator might say to the silent clip, and when
SAID = (
    (0.8, "To start, turn on the tap."),
    (4.2, "Go ahead and wet your hands."),
    (7.6, "Now put some soap on your hands."),
    (10.6, "And rub your hands together really well."),
    (15.6, "Finally, rinse your hands under the water."),
)


def spoken(text: str) -> np.ndarray:
    """The sound (n,) of one line at 16 kHz."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", str(path), text], check=True)
        return np.asarray(read_audio(path), np.float32)


def main(target: str) -> None:
    """Speaks all lines at their times and writes the file."""
    sound = np.zeros(round(LENGTH_S * SAMPLE_RATE_HZ), np.float32)
    for start_s, text in SAID:
        line, at = spoken(text), round(start_s * SAMPLE_RATE_HZ)
        sound[at : at + len(line)] += line[: len(sound) - at]
    with av.open(target, "w") as file:
        stream = file.add_stream("libopus", rate=SAMPLE_RATE_HZ, layout="mono")
        stream.bit_rate = 16_000
        frame = av.AudioFrame.from_ndarray(sound[None], "flt", "mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


if __name__ == "__main__":
    main(sys.argv[1])
