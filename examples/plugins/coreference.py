"""A co-reference stage of your own: what "it" and "them" stand for.

    stepformer phrases talk.vtt --coreference stanza --plugin coreference.py

Or, in an installed package:  [project.entry-points."stepformer.resolvers"]  stanza = "my_package.coreference:Stanza"

This one asks Stanza (pip install stanza; in Python: stanza.download("en", processors="tokenize,coref")).
It is tested with a stand-in for that package, not with its weights.
"""

import functools
from itertools import accumulate

from stepformer.narration import RESOLVERS
from stepformer.narration.coref import pronouns
from stepformer.narration.syntax import short_name


class Stanza:
    """The protocol is `stepformer.narration.Resolver`; one is made for each video, so the model is kept outside."""

    def resolve(self, tree):
        """Token of a pronoun -> the words it stands for: the nearest noun before it in its cluster, else behind it."""
        sentences = [tree.text[first:last] for first, last in tree.sentences()]
        offsets, found = [0, *accumulate(map(len, sentences))], {}
        for chain in _pipeline()(sentences).coref:
            spans = [(offsets[m.sentence] + m.start_word, offsets[m.sentence] + m.end_word) for m in chain.mentions]
            nouns = [i for span in spans for i in range(*span) if tree.tag[i][:2] == "NN" and _is_head(tree, i, span)]
            for at in {first for first, last in spans if last - first == 1} & set(pronouns(tree)):
                if nouns:
                    found[at] = short_name(tree, max((i for i in nouns if i < at), default=nouns[0]))
        return found


def _is_head(tree, token, span):
    return tree.head[token] not in range(*span)


@functools.cache
def _pipeline():
    import stanza  # here, so that the plugin costs nothing until its name is asked for

    return stanza.Pipeline("en", processors="tokenize,coref", tokenize_pretokenized=True, download_method=None)


RESOLVERS.register("stanza", Stanza)
