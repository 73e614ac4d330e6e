"""A punctuation stage of your own: where sentences end in captions that have no marks.

    stepformer phrases talk.vtt --punctuation sat --plugin punctuation.py
    stepformer phrases talk.vtt --punctuation sat:sat-12l-sm --plugin punctuation.py

Or, in an installed package:  [project.entry-points."stepformer.segmenters"]  sat = "my_package.punctuation:Sat"

This one asks Segment any Text (pip install wtpsplit), whose pieces joined give the text back. It is tested with a
stand-in for that package, not with its weights.
"""

import functools

from stepformer.narration import SEGMENTERS


class Sat:
    """The protocol is `stepformer.narration.Segmenter`; VALUE of "NAME:VALUE" comes as the first argument."""

    def __init__(self, model="sat-3l-sm"):
        self._model = _loaded(model)

    def ends(self, words, tags):
        """For each word, whether a sentence ends behind it."""
        cuts, at = set(), 0
        for piece in self._model.split(" ".join(word.text for word in words)):
            at += len(piece)
            cuts.add(at)
        found, end = [], -1
        for word in words:
            end += 1 + len(word.text)
            found.append(end in cuts or end + 1 in cuts)  # the space may go with either sentence
        return [*found[:-1], True] if found else []


@functools.cache
def _loaded(model):
    from wtpsplit import SaT  # here, so that the plugin costs nothing until its name is asked for

    return SaT(model)


SEGMENTERS.register("sat", Sat)
