"""An encoder of your own: pictures and texts in one space.

    stepformer prepare features videos/ store/ --encoder hues --plugin encoder.py

Or, in an installed package:  [project.entry-points."stepformer.encoders"]  hues = "my_package.encoder:HueEncoder"

The protocol is `stepformer.encoders.Encoder`; "NAME:VALUE" on the command line passes VALUE as the first argument.
"""

import numpy as np

from stepformer.encoders import ENCODERS, Encoded, FrameSpec

WORDS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1), "yellow": (1, 1, 0)}


class HueEncoder:
    """The mean colour of a picture, and the colours that a text names: what two towers are, in three dimensions."""

    name, license, fingerprint = "hues", "CC0-1.0", "hues-1"  # change the fingerprint whenever the vectors change
    dim, structure_dim = 3, 0
    rate_hz = 1.0  # one vector per second
    wants = FrameSpec(size=(32, 32))  # one RGB picture of 32 x 32 per vector; frames=16 would ask for clips

    def encode_video(self, frames):
        """uint8 (N, 32, 32, 3) -> vectors (N, 3). Batches of one video come in turn."""
        return Encoded(_unit(frames.mean(axis=(1, 2)) / 255.0))

    def encode_text(self, texts):
        """L texts -> (L, 3) unit vectors; a text that names no colour is grey."""
        found = [[WORDS[word] for word in text.lower().split() if word in WORDS] for text in texts]
        return _unit(np.array([np.mean(colours or [(1, 1, 1)], axis=0) for colours in found]).reshape(-1, 3))


def _unit(x):
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6), np.float32)


ENCODERS.register("hues", HueEncoder)
