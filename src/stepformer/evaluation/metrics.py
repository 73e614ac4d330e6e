"""Frame-wise scores of one task or one video, from int arrays where -1 is background. NumPy only.

**Task score** (Shen et al. 2021; the paper's Table 1). All videos of a task are concatenated. ONE Hungarian matching
between clusters and steps maximises the number of frames on which they overlap, background left out on both sides.
With ``correct`` = frames in matched (cluster, step) pairs:

- precision = correct / frames predicted as any cluster (unmatched clusters count against it),
- recall = correct / frames labelled with any step (unmatched steps count against it),
- F1 = 2 P R / (P + R) of those pooled values,
- MoF = (correct + frames that are background in both) / all frames. A frame of an unmatched cluster is wrong even where
  the label is background: the method said "a step is here".

**Historical MoF**: what public code prints. It compares positions in the two sorted lists of matched ids instead of
the ids, so it is right only if both sides have the ids 0..k-1 and equally many. It is given for comparing with old
tables, under its own name; a prediction of nothing at all gets 1.0 from it.

**Video score** (the paper's Table 2). Prediction and labels use the same ids, positions in the video's own step list.
With ``correct`` = frames where both name the same step, P predicted and L labelled frames: precision = correct / P,
recall = correct / L, IoU = sum of the steps' intersections / sum of their unions = correct / (P + L - correct),
MoF = share of all frames, background included, that agree.

**Table 2** averages video scores, each video counting the same. The list is the video's own annotated steps ordered by
time: a step done twice stands there twice, at two positions; where two overlap, the later in the list has the frames. A
position that no frame takes counts against recall and IoU. A video without annotations is not in the average.

Everywhere 0/0 is 0.

**From seconds to frames**: labels are at 16 frames per second. An annotation from ``start_s`` to ``end_s`` covers the
frames floor(start · rate) up to and without ceil(end · rate); a video of ``duration_s`` has ceil(duration · rate)
frames, and what lies beyond its end is cut off. Where two annotations overlap, the last one in the order given wins.
Predictions usually come at one per second: each is repeated for the label frames of its second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepformer.data.records import VideoRecord
from stepformer.errors import InputError
from stepformer.evaluation.hungarian import assign

BACKGROUND = -1
LABEL_RATE_HZ = 16.0
_EPSILON = 1e-6  # of a frame: 3.2 s at 10 Hz is 32.000000000000004 frames and means 32
MAX_ID = 2**53  # what is above is no id but -1 in an unsigned type, or garbage
MAX_DENSE = 1024  # ids above this are renumbered, so that a stray large id costs no memory

IntArray = npt.NDArray[np.int64]


class LengthError(InputError, ValueError):
    """Predictions and labels do not have the same number of videos or frames."""


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of a task or a video, each in [0, 1], of what they are made from: frames that are rightly called a step,
    called a step, labelled as one, that agree (background included), and all.

    Of a task, ``matches`` are the (cluster, step) pairs of the Hungarian matching.
    """

    correct: int
    predicted: int
    labelled: int
    agreeing: int
    frames: int
    mof_historical: float = float("nan")
    matches: tuple[tuple[int, int], ...] = ()

    @property
    def precision(self) -> float:
        """Of what is predicted."""
        return ratio(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """Of what is labelled."""
        return ratio(self.correct, self.labelled)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return harmonic(self.precision, self.recall)

    @property
    def iou(self) -> float:
        """Correct frames over predicted or labelled ones."""
        return ratio(self.correct, self.predicted + self.labelled - self.correct)

    @property
    def mof(self) -> float:
        """Mean over frames."""
        return ratio(self.agreeing, self.frames)


def ratio(part: float, whole: float) -> float:
    """part / whole, where 0/0 is 0."""
    return float(part / whole) if whole else 0.0


def harmonic(precision: float, recall: float) -> float:
    """F1 of precision and recall."""
    return ratio(2 * precision * recall, precision + recall)


def check_ids(values: npt.ArrayLike, what: str) -> IntArray:
    """One video's ids as int64 (N,): whole numbers of at least -1, or an error that says where not."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{what} must be one row of ids, one per frame, got shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    whole = array.dtype.kind in "iu" or (
        array.dtype.kind == "f" and bool(np.isfinite(array).all() and (array == np.floor(array)).all())
    )
    if not whole:
        raise InputError(f"{what} must be whole numbers (-1 is background), got {array.dtype}")
    if array.min() < BACKGROUND:
        at = int(np.argmax(array < BACKGROUND))
        raise InputError(f"{what}: frame {at} has id {array[at]}; ids are 0 and up, and -1 for background")
    if array.max() > MAX_ID:
        at = int(np.argmax(array > MAX_ID))
        raise InputError(f"{what}: frame {at} has id {array[at]} ({array.dtype}); is that -1 in an unsigned type?")
    return array.astype(np.int64)


def rename_ids(ids: IntArray, rename: Callable[[int], int]) -> IntArray:
    """Every id but background replaced; looks at the ids that occur, so that a stray large one costs no memory."""
    values, inverse = np.unique(ids, return_inverse=True)
    names = [BACKGROUND if value == BACKGROUND else rename(value) for value in values.tolist()]
    return np.array(names, np.int64)[inverse.reshape(-1)]


def paired(predictions: object, labels: object, least: int = 0) -> list[tuple[IntArray, IntArray]]:
    """Each video's prediction and labels, checked: as many frames on both sides, and ``least`` videos or more."""
    p_list, l_list = _videos(predictions, "prediction"), _videos(labels, "labels")
    if len(p_list) != len(l_list):
        raise LengthError(f"{len(p_list)} videos are predicted and {len(l_list)} are labelled; give the same videos")
    for i, (p, y) in enumerate(zip(p_list, l_list, strict=True)):
        if len(p) != len(y):
            raise LengthError(
                f"video {i}: {len(p)} frames are predicted and {len(y)} are labelled; "
                "bring both to one rate first (stepformer.evaluation.resample)"
            )
    if len(p_list) < least:
        raise InputError("there is no video to score; are there predictions for any annotated video?")
    return list(zip(p_list, l_list, strict=True))


def _videos(values: object, what: str) -> list[IntArray]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype != object:
        return [check_ids(values, what)]
    if not isinstance(values, Iterable):
        raise InputError(f"{what}: expected a list of int arrays, one per video, got {type(values).__name__}")
    return [check_ids(video, f"{what} of video {i}") for i, video in enumerate(values)]


def confusion(predictions: object, labels: object) -> tuple[IntArray, IntArray, IntArray, bool]:
    """Of lists of int arrays (one per video), or of two single arrays: how many frames have prediction p and label y,
    at [p + 1, y + 1] of (P + 1, L + 1), so that row and column 0 are background; the ids of the other rows (P,) and
    columns (L,); and whether those are dense, 0..P-1 and 0..L-1 whether they occur or not, as the historical MoF needs.
    """
    pairs = paired(predictions, labels) or [(np.empty(0, np.int64), np.empty(0, np.int64))]
    p, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
    n_clusters, n_steps = (int(a.max(initial=-1)) + 1 for a in (p, y))
    dense = max(n_clusters, n_steps) <= MAX_DENSE
    if dense:
        clusters, steps = np.arange(n_clusters), np.arange(n_steps)
    else:
        clusters, p = renumber(p)
        steps, y = renumber(y)
    shape = (len(clusters) + 1, len(steps) + 1)
    counts = np.bincount((p + 1) * shape[1] + (y + 1), minlength=shape[0] * shape[1]).reshape(shape)
    return counts.astype(np.int64), clusters, steps, dense


def renumber(ids: IntArray) -> tuple[IntArray, IntArray]:
    """The ids that occur, ascending, and the array in their positions; background stays -1."""
    values, inverse = np.unique(ids, return_inverse=True)
    has_background = bool(values.size and values[0] == BACKGROUND)
    return values[int(has_background) :], inverse.reshape(-1).astype(np.int64) - int(has_background)


def score_task(predictions: Sequence[npt.ArrayLike] | IntArray, labels: Sequence[npt.ArrayLike] | IntArray) -> Score:
    """The task score of lists of int arrays, one per video, -1 background: ``.precision .recall .f1 .mof``.

    Cluster ids and step ids are unrelated; one Hungarian matching for the whole list relates them.

    Raises:
        LengthError: the lists, or a video's prediction and labels, differ in length.
        InputError: ids that are not whole numbers of at least -1.

    Examples:
        >>> score = score_task([[7, 7, 4, -1]], [[0, 0, 1, 1]])
        >>> score.matches, score.precision, score.recall
        (((4, 1), (7, 0)), 1.0, 0.75)
    """
    counts, clusters, steps, dense = confusion(predictions, labels)
    overlap = counts[1:, 1:]  # (P, L), background left out
    rows, columns = assign(overlap)
    correct = int(overlap[rows, columns].sum())
    matches = tuple((int(clusters[r]), int(steps[c])) for r, c in zip(rows, columns, strict=True) if overlap[r, c])
    predicted, labelled, frames = int(counts[1:].sum()), int(counts[:, 1:].sum()), int(counts.sum())
    historical = _historical_mof(counts, rows, columns) if dense else float("nan")
    return Score(correct, predicted, labelled, correct + int(counts[0, 0]), frames, historical, matches)


def matched(ids: Sequence[IntArray], labels: Sequence[IntArray], beyond: int | None = None) -> list[IntArray]:
    """Cluster ids (N_v,) as the steps that one matching with the labels gives them.

    Ids that match no step become -2, which agrees with nothing, or ids of their own from ``beyond`` on.
    """
    steps = dict(score_task(ids, labels).matches)
    return [rename_ids(video, lambda i: steps.get(i, -2 if beyond is None else beyond + i)) for video in ids]


def _historical_mof(counts: IntArray, rows: IntArray, columns: IntArray) -> float:
    """Agreement of position p in the matched columns (cluster p) and position y in the matched rows (step y)."""
    p, y = (np.full(size, -1) for size in counts.shape)
    # background has index -1 there, the last position, which is never a match; here it is row and column 0
    p[1 : len(columns) + 1], y[1 : len(rows) + 1] = columns, rows
    return ratio(int(counts[p[:, None] == y[None, :]].sum()), int(counts.sum()))


def score_video(prediction: npt.ArrayLike, labels: npt.ArrayLike) -> Score:
    """The video score of two int arrays in the same ids, -1 background: ``.iou .precision .recall .mof``.

    Raises:
        LengthError: the arrays differ in length.
        InputError: ids that are not whole numbers of at least -1.

    Examples:
        >>> score = score_video([0, 0, 1, -1], [0, 1, 1, -1])
        >>> score.iou, score.mof
        (0.5, 0.75)
    """
    ((p, y),) = paired([prediction], [labels])
    agree = p == y
    is_step = y != BACKGROUND
    correct, predicted, labelled = int((agree & is_step).sum()), int((p != BACKGROUND).sum()), int(is_step.sum())
    return Score(correct, predicted, labelled, int(agree.sum()), len(p))


def score_table2(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> dict[str, float]:
    """The Table 2 scores, averaged over videos: positions in each video's own step list, -1 background, (N_v,) each.

    Raises:
        LengthError: unequal numbers of videos, or of frames in a video (the message says which).

    Examples:
        >>> score_table2([[0, 0, 1, -1]], [[0, 1, 1, -1]])["iou"]
        0.5
    """
    scores = [score_video(prediction, truth) for prediction, truth in paired(predictions, labels, least=1)]
    return {name: float(np.mean([getattr(s, name) for s in scores])) for name in ("iou", "precision", "recall", "mof")}


def frame_count(duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> int:
    """How many frames a video has at a rate: ceil(duration · rate)."""
    if not (duration_s >= 0 and rate_hz > 0):
        raise InputError(f"a duration must not be negative and a rate must be positive, got {duration_s} and {rate_hz}")
    return int(np.ceil(duration_s * rate_hz - _EPSILON))


def rasterise(segments: Iterable[tuple[int, float, float]], n_frames: int, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Ids (n_frames,) of segments (id, start_s, end_s); -1 where there is none, the last wins where two overlap.

    Examples:
        >>> rasterise([(0, 0.0, 2.0), (1, 3.0, 4.5)], 6, rate_hz=1.0).tolist()
        [0, 0, -1, 1, 1, -1]
    """
    out = np.full(n_frames, BACKGROUND, np.int64)
    for step, start_s, end_s in segments:
        first = max(0, int(np.floor(start_s * rate_hz + _EPSILON)))
        out[first : max(first, int(np.ceil(end_s * rate_hz - _EPSILON)))] = step
    return out


def resample(
    prediction: npt.ArrayLike, from_hz: float, n_frames: int, to_hz: float = LABEL_RATE_HZ, slack_s: float = 2.0
) -> IntArray:
    """A prediction at ``from_hz`` as ``n_frames`` ids at ``to_hz``: each frame takes the id at its middle.

    Features are often cut a second short or long, so up to ``slack_s`` missing seconds become background and extra
    ones are cut off; more than that is an error, because it means another video or another rate.

    Examples:
        >>> resample([0, 1], from_hz=1.0, n_frames=6, to_hz=3.0).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    p = check_ids(prediction, "prediction")
    if not (from_hz > 0 and to_hz > 0):
        raise InputError(f"rates must be positive, got {from_hz} and {to_hz}")
    gap_s = len(p) / from_hz - n_frames / to_hz
    # one prediction stands for a whole 1 / from_hz seconds, of which the video may end anywhere
    if abs(gap_s) > slack_s + 1 / from_hz:
        raise LengthError(
            f"the prediction covers {len(p) / from_hz:.1f} s ({len(p)} at {from_hz:g} Hz) and the video lasts "
            f"{n_frames / to_hz:.1f} s; is the rate right?"
        )
    source = ((np.arange(n_frames) + 0.5) * (from_hz / to_hz)).astype(np.int64)
    out = np.full(n_frames, BACKGROUND, np.int64)
    inside = source < len(p)
    out[inside] = p[source[inside]]
    return out


def task_labels(record: VideoRecord, duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Labels of a video in its task's step indices, file order deciding overlaps: (ceil(duration · rate),)."""
    return rasterise(((a.step, a.start_s, a.end_s) for a in record.labels), frame_count(duration_s, rate_hz), rate_hz)


def own_labels(record: VideoRecord, duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Labels of a video as positions in its own ordered step list, repeats included: (ceil(duration · rate),)."""
    return rasterise(
        ((i, a.start_s, a.end_s) for i, a in enumerate(record.ordered_steps)),
        frame_count(duration_s, rate_hz),
        rate_hz,
    )
