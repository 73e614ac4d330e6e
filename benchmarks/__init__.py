"""Studies that measure the product: ``stepformer bench NAME`` in a checkout of the repository. Not in the wheel."""

from __future__ import annotations

# word after `stepformer bench` -> one line of help; the module of that name has the command
STUDIES = {
    "calibrate": "how ground-truth texts score on simulated videos, beside the paper's row",
    "capacity": "what HowTo100M costs on one machine, 8 GPUs, 100 nodes, from measured rates",
    "claim": "under which conditions slots trained on narration beat untrained controls",
    "encode": "decoding and encoding against real time, and where time goes",
    "encoders": "how good encoders' vectors are for steps, on marked clips",
    "jobs": "several jobs of discovery against one, on small videos",
    "loader": "batches per second from a feature store, against a raw read of the same files",
    "looks": "what clip saves and loses by encoding fewer frames",
    "names": "names guessed from frames, and absent steps, on held-out frames; makes the picture statistics",
    "narrated": "discovery with narration that is right, absent or wrong; chooses the constants of the evidence",
    "narration": "words per second, against the bare parser; memory",
    "phrases": "phrases against the gold set and against human steps",
    "procedure": "common steps of simulated tasks against controls",
    "published": "Kukleva et al. and controls on GTEA and Breakfast",
    "real": "discovery and localisation on real videos against controls",
    "runs": "curves and scores of training runs, from their folders",
    "said": "names taken from what is said, against labels and human steps; trains their classifier",
    "sight": "encoder clip's text tower on held-out pictures, captions and true text vectors",
    "simulated": "a checkpoint on simulated videos, beside controls",
    "sizes": "the time of one alignment against its rows and columns",
    "speech": "word error and speed of speech to text, and names with misheard words, on synthetic voices",
    "step": "the parts of a training step against their lower bounds, and step times against each size",
    "steps": "the number of steps found, against a constant and one per n seconds; makes its prior",
    "threshold": "the automatic drop threshold against the paper's and the released code's",
    "tower": "train the text tower of encoder clip",
    "world": "make the simulated world from public datasets and real pictures",
}
