"""The model as people use it: a video in, a timeline out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.app.discover.heard import Heard, as_batch
from stepformer.app.discover.options import DiscoverOptions, Use, check_texts
from stepformer.app.naming import (
    PRESENT_SEEN,
    Name,
    PhraseBank,
    best_fit,
    guess,
    load_bank,
    present_texts,
    tell_apart,
    topic_of,
)
from stepformer.app.spoken import Candidates
from stepformer.base.arrays import unit
from stepformer.core.checkpoint import Checkpoint
from stepformer.core.devices import SMALL_FRAMES, one_thread
from stepformer.core.inference import find_steps, find_texts
from stepformer.core.model import Slots
from stepformer.core.options import PAPER_INFERENCE
from stepformer.core.segments import Segment
from stepformer.encoders.base import Encoder, Vectors
from stepformer.encoders.reading import Features, Report, read_video
from stepformer.errors import InputError, UsageError
from stepformer.timeline import Step, Timeline
from stepformer.version import __version__

if TYPE_CHECKING:
    from stepformer.narration.listening import Listening, Narration

Labels = Literal["auto", "none"]
Method = Literal["slots", "text"]
_FINEST_HZ = 4.0  # features of a higher rate are averaged down: annotations are no finer
_MOST_FRAMES = 14_400  # an hour at that rate; more features are averaged down (those of a video while it is read)
_MOMENT_S = 2.0  # a still picture no longer than this is one step; a longer one shows none
_STILL = 1e-6  # variance of unit vectors below which a picture never changes


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """A timeline with what it was made from, for pictures, search and procedures.

    Attributes:
        timeline: The steps.
        similarity: (K, N) of slots (or texts) with frames.
        step_vectors: (M, D) one per step of the timeline, its slot's where it has one.
        segment_vectors: (M, D) the mean of the step's frames.
        slots: (K, D).
        features: As they were seen, N of them.
        seconds: Time spent in each part.
        said: (L, D) what is said that is no chatter.
    """

    timeline: Timeline
    similarity: NDArray[np.float32]
    step_vectors: Vectors
    segment_vectors: Vectors
    slots: Vectors
    features: Features
    seconds: dict[str, float] = field(default_factory=dict)
    said: Vectors | None = None

    @property
    def looks(self) -> Vectors:
        """(M, D) what each step is, for comparing steps of different videos: its slot and its frames, half each."""
        return np.asarray(unit(self.step_vectors) + unit(self.segment_vectors), np.float32)


class StepFormer:
    """A trained decoder with the encoder it belongs to. Made by :func:`stepformer.load_model`.

    Args:
        checkpoint: Weights and options.
        name: What outputs and messages call the model.
        encoder: A name or an encoder object instead of the checkpoint's own.
        device: Where the decoder runs.
    """

    def __init__(
        self, checkpoint: Checkpoint, name: str = "", encoder: str | Encoder | None = None, device: str = "cpu"
    ) -> None:
        self.checkpoint, self.name, self.device = checkpoint, name, device
        self._encoder_spec = encoder
        self.inference = checkpoint.inference
        self._banks: dict[str, PhraseBank] = {}

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder, loaded when it is first needed."""
        from stepformer import encoders

        named = self.checkpoint.encoder
        if self._encoder_spec is None and named.partition(":")[0] not in encoders.names():
            # another encoder's vectors of the same width would give steps that mean nothing, without a word
            raise UsageError(
                f"model {self.name} takes vectors of {named or 'an encoder it does not name'!r}, which is none of "
                f"{', '.join(encoders.names())}; name the encoder that makes them with --encoder (encoder= in Python)"
            )
        spec = named if self._encoder_spec is None else self._encoder_spec
        made = encoders.load(spec) if isinstance(spec, str) else spec
        width = self.checkpoint.model.config.feature_dim
        if made.dim != width:
            raise UsageError(
                f"model {self.name} takes vectors of {width} dimensions and encoder {made.name} makes {made.dim}; "
                "use the encoder the model was trained on, or a model trained on this one"
            )
        return made

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, video: str | os.PathLike[str], report: Report | None = None, cache: bool = True) -> Features:
        """Decodes and encodes a video, or takes what was kept from before.

        Args:
            video: The file.
            report: Called with seconds done and seconds in all.
            cache: Keep the features for the next time.
        """
        return read_video(video, self.encoder, report, cache)

    @torch.inference_mode()
    def run(self, vectors: NDArray[Any]) -> Slots:
        """Slots of one video's vectors (N, D), on the CPU: slots (1, K, D), frames (1, N, D), attention (1, K, N)."""
        want = self.checkpoint.model.config.feature_dim
        if vectors.ndim != 2 or vectors.shape[1] != want:
            raise UsageError(f"model {self.name} takes (N, {want}) vectors, got {vectors.shape}")
        video = torch.as_tensor(np.asarray(vectors, np.float32), device=self.device)[None]
        with one_thread(self.device == "cpu" and len(vectors) <= SMALL_FRAMES):
            out = self.checkpoint.model(video, attention=True)
        attention = None if out.attention is None else out.attention.float().cpu()
        return Slots(out.slots.float().cpu(), out.frames.float().cpu(), attention)

    # -- discovery ----------------------------------------------------------------------------------------------

    def discover(
        self,
        video: str | os.PathLike[str],
        *,
        steps: int | None = None,
        detail: float | None = None,
        percentile: float | None = None,
        similarity: float | None = None,
        ordered: bool = True,
        use: Use = "both",
        listening: Listening | None = None,
        labels: Labels = "auto",
        bank: Sequence[str] | None = None,
        report: Report | None = None,
        cache: bool = True,
    ) -> Timeline:
        """The steps of a video file, with the words of its narration where it has one.

        Give at most one of steps, detail, percentile and similarity.

        Args:
            video: The file.
            steps: How many steps; by default their number follows from the video.
            detail: From 0 (few, long steps) to 1 (many, short ones); 0.5 is the default.
            percentile: The paper's threshold: this percentile of the slot-frame similarities.
            similarity: The released code's: the threshold itself.
            ordered: Slots come in order; False is the paper's ablation.
            use: "both" slots and structure, "slots" (with percentile=90 the paper's inference) or "structure".
            listening: Where narration is looked for; by default subtitles, else speech.
            labels: "none" leaves the steps without names.
            bank: Phrases to guess names from.
            report: Called with seconds done and seconds in all.
            cache: Keep the features for the next time.

        Raises:
            InputError: the file cannot be read as video.
            UsageError: options that make no sense.
        """
        from stepformer.narration.listening import narration_of

        chosen = DiscoverOptions(steps, detail, percentile, similarity, ordered, use)
        features = self.read(video, report, cache)
        return self.find(features, chosen, narration=narration_of(video, listening), labels=labels, bank=bank).timeline

    def discover_features(
        self,
        vectors: NDArray[Any],
        rate_hz: float = 1.0,
        structure: NDArray[Any] | None = None,
        *,
        steps: int | None = None,
        detail: float | None = None,
        percentile: float | None = None,
        similarity: float | None = None,
        ordered: bool = True,
        use: Use = "both",
        labels: Labels = "none",
        video: str = "",
        duration_s: float = 0.0,
    ) -> Timeline:
        """The steps of features that you have; the other options are those of :meth:`discover`.

        Args:
            vectors: (N, D) of the model's encoder.
            rate_hz: How many there are per second.
            structure: (N, S) other features to place boundaries by; without it the vectors themselves are used.
            labels: Steps have names only with "auto", which loads the text side.
            video: What the timeline calls the video.
            duration_s: Its length; by default N / rate_hz.

        Examples:
            >>> vectors = np.repeat(np.eye(2, 512), 30, axis=0)     # thirty seconds of one thing, then of another
            >>> timeline = sf.load_model().discover_features(vectors, rate_hz=1.0)
            >>> [(step.start_s, step.end_s) for step in timeline]
            [(0.0, 30.0), (30.0, 60.0)]
        """
        features = Features(np.asarray(vectors), rate_hz, structure, duration_s, video)
        options = DiscoverOptions(steps, detail, percentile, similarity, ordered, use)
        return self.find(features, options, labels=labels).timeline

    def find(
        self,
        features: Features,
        options: DiscoverOptions | None = None,
        *,
        narration: Narration | None = None,
        labels: Labels = "auto",
        bank: Sequence[str] | None = None,
    ) -> Finding:
        """As :meth:`discover`, from features, with everything the timeline was made from.

        Args:
            features: What :meth:`read` gave, or your own.
            options: How finely the video is cut and by what.
            narration: What is said, see :func:`stepformer.narration.narration_of`.
            labels: "none" leaves the steps without names.
            bank: Phrases to guess names from.
        """
        options = options or DiscoverOptions()
        seen = _at_working_rate(features)
        began = time.perf_counter()
        output = self.run(seen.vectors)
        modelled = time.perf_counter()
        notes: list[str] = []
        heard = Heard.of(narration, self.encoder, notes) if narration else None
        spoken = heard.names(notes) if heard else None
        told = None if options.use == "structure" else heard
        with one_thread(len(seen) <= SMALL_FRAMES):
            found = find_steps(
                output, _all(output), options.inference(self.inference), rate_hz=seen.rate_hz, steps=options.steps,
                structure=told.structure(seen) if told else as_batch(seen.cutting),
                evidence=told.evidence(seen) if told else None,
                acts=spoken.acts(len(seen), seen.rate_hz) if spoken and told else None,
            )  # fmt: skip
        pieces: Sequence[Segment] = found.segments[0]
        penalty, similarity = float(found.penalty[0]), found.similarity[0].float().numpy()
        threshold = None if options.use == "structure" else float(found.threshold[0])
        if _is_still(seen):
            threshold, penalty = None, 0.0
            pieces = (Segment(0, len(seen), -1),) if seen.duration_s <= _MOMENT_S else ()
            if not pieces:
                notes.append("the picture never changes: there are no steps to tell apart")
        aligned = time.perf_counter()
        slots = output.slots[0].numpy()
        whole = unit(seen.vectors).mean(0)
        step_vectors, segment_vectors = _vectors_of(pieces, slots, seen.vectors)
        names: list[Name | None] = [None] * len(pieces)
        if labels != "none" and pieces:
            if spoken is not None:
                spans_s = [span_s(piece, seen) for piece in pieces]
                names = spoken.of_steps(spans_s, self._shares(spoken, segment_vectors))
            # between spoken steps a gap stays without a name: a phrase of the bank would be unrelated to what is said
            names = tell_apart(names if any(names) else self._seen((step_vectors, segment_vectors), whole, bank, notes))
        labelled = time.perf_counter()
        steps = tuple(_step(piece, name, similarity, seen) for piece, name in zip(pieces, names, strict=True))
        meta = self.provenance("discover", {**options.to_dict(), "labels": labels})
        meta |= {"method": {"both": "slots+structure"}.get(options.use, options.use), "rate_hz": seen.rate_hz}
        by_sight = bank is None and labels != "none" and all(name is None or name.source == "seen" for name in names)
        if pieces and by_sight and "" in self._banks and (topic := topic_of(whole, self._banks[""])):
            meta["topic"] = topic
        meta["penalty_s"] = round(penalty / seen.rate_hz, 4)
        if threshold is not None:
            meta["threshold"] = round(threshold, 4)
        if narration is not None and narration.cues:
            meta["narration"] = {"source": narration.source, "where": narration.where}
        spent = features.seconds | {"model": modelled - began, "align": aligned - modelled, "label": labelled - aligned}
        phrases = heard.vectors[[not phrase.chatter for phrase in heard.phrases]] if heard else None
        timeline = _timeline(features, steps, meta, notes)
        return Finding(timeline, similarity, step_vectors, segment_vectors, slots, seen, spent, phrases)

    # -- localisation -------------------------------------------------------------------------------------------

    def locate(
        self,
        video: str | os.PathLike[str],
        texts: Sequence[str],
        ordered: bool = True,
        *,
        method: Method | None = None,
        all_present: bool = False,
        listening: Listening | None = None,
        report: Report | None = None,
        cache: bool = True,
    ) -> Timeline:
        """When the given steps happen. A step that is not in the video is named in ``meta["absent"]``, not forced.

        Args:
            video: The file.
            texts: The steps.
            ordered: They happen in the order given; False allows any order and repeats.
            method: "slots", the paper's inference, or "text", texts and cuts, instead of what the model's options say
                (``meta["method"]`` has it; of the model that ships it is "text").
            all_present: Every step is taken to be in the video.
            listening: As in :meth:`discover`.
            report: As in :meth:`discover`.
            cache: As in :meth:`discover`.

        Raises:
            InputError: the file cannot be read as video.
            UsageError: no texts, or an empty one.

        Examples:
            >>> model = sf.load_model()
            >>> timeline = model.locate("pancakes.mp4", ["crack the eggs", "whisk", "pour into the pan"])
            >>> [(step.label, step.start_s, step.end_s) for step in timeline]
            [('crack the eggs', 0.0, 10.0), ('whisk', 10.0, 20.0), ('pour into the pan', 20.0, 30.0)]
        """
        from stepformer.narration.listening import narration_of

        texts = check_texts(texts)
        features = self.read(video, report, cache)
        heard = narration_of(video, listening)
        found = self.place(features, texts, ordered, method=method, all_present=all_present, narration=heard)
        return found.timeline

    def locate_features(
        self,
        vectors: NDArray[Any],
        texts: Sequence[str],
        rate_hz: float = 1.0,
        structure: NDArray[Any] | None = None,
        *,
        text_vectors: NDArray[Any] | None = None,
        ordered: bool = True,
        method: Method | None = None,
        video: str = "",
    ) -> Timeline:
        """As :meth:`locate`, from features that you have.

        Args:
            vectors: (N, D) of the model's encoder.
            texts: The steps.
            rate_hz: How many vectors there are per second.
            structure: (N, S) other features to place boundaries by.
            text_vectors: (M, D) of the texts: with them no text encoder is needed, and no step is called absent.
            ordered: As in :meth:`locate`.
            method: As in :meth:`locate`.
            video: What the timeline calls the video.

        Examples:
            >>> vectors = np.repeat(np.eye(2, 512), 30, axis=0)
            >>> texts = {"whisk": np.eye(512)[0], "pour into the pan": np.eye(512)[1]}
            >>> model = sf.load_model()
            >>> timeline = model.locate_features(vectors, [*texts], text_vectors=np.stack([*texts.values()]))
            >>> [(step.label, step.start_s) for step in timeline]
            [('whisk', 0.0), ('pour into the pan', 30.0)]
        """
        features = Features(np.asarray(vectors), rate_hz, structure, video=video)
        texts = check_texts(texts)
        return self.place(features, texts, ordered, text_vectors=text_vectors, method=method).timeline

    def place(
        self,
        features: Features,
        texts: Sequence[str],
        ordered: bool = True,
        *,
        text_vectors: NDArray[Any] | None = None,
        method: Method | None = None,
        all_present: bool = False,
        narration: Narration | None = None,
    ) -> Finding:
        """As :meth:`locate`, from features, with everything the timeline was made from.

        Args:
            features: What :meth:`read` gave, or your own.
            texts: The steps.
            ordered: As in :meth:`locate`.
            text_vectors: As in :meth:`locate_features`.
            method: As in :meth:`locate`.
            all_present: As in :meth:`locate`.
            narration: What is said, see :func:`stepformer.narration.narration_of`.
        """
        seen = _at_working_rate(features)
        began = time.perf_counter()
        given = text_vectors is not None
        vectors = np.asarray(text_vectors if given else self.encoder.encode_text(list(texts)), np.float64)
        notes: list[str] = []
        heard = None if given or narration is None else Heard.of(narration, self.encoder, notes)
        embedded = time.perf_counter()
        output = self.run(seen.vectors)
        modelled = time.perf_counter()
        slots = output.slots[0].numpy()
        # vectors that were handed over may be of any text side, so that nothing can judge them
        present = None if given or all_present else self._present(vectors, slots, seen, notes)
        config = replace(self.inference, ordered=self.inference.ordered and ordered)
        if method == "slots":
            config = replace(PAPER_INFERENCE, ordered=config.ordered)
        elif method == "text":
            config = replace(config, text_share=1.0)
        with one_thread(len(seen) <= SMALL_FRAMES):
            found = find_texts(
                output, _all(output), as_batch(vectors), torch.tensor([len(texts)]), config,
                structure=heard.structure(seen) if heard else as_batch(seen.cutting), rate_hz=seen.rate_hz,
                present=None if present is None else torch.from_numpy(present)[None],
                text_evidence=heard.of_texts(texts, self.encoder, seen) if heard else None,
            )  # fmt: skip
        aligned = time.perf_counter()
        pieces = found.segments[0]
        taken = [-1] * len(texts) if found.slots is None else found.slots[0].tolist()
        _, segment_vectors = _vectors_of(pieces, slots, seen.vectors)
        text_of = np.asarray([vectors[piece.row] for piece in pieces], np.float32).reshape(-1, vectors.shape[1])
        fit = (unit(text_of) * unit(segment_vectors)).sum(1)
        steps = tuple(
            Step(
                *span_s(piece, seen), label=texts[piece.row], score=round(float(score), 4),
                slot=taken[piece.row] if taken[piece.row] >= 0 else None, meta={"given": piece.row, "source": "typed"},
            )
            for piece, score in zip(pieces, fit, strict=True)
        )  # fmt: skip
        meta = self.provenance("locate", {"steps": list(texts), "ordered": ordered})
        meta |= {"method": {0.0: "slots", 1.0: "text"}.get(config.text_share, "slots+text"), "rate_hz": seen.rate_hz}
        placed = {piece.row for piece in pieces}
        meta["absent"] = [text for i, text in enumerate(texts) if i not in placed]
        spent = features.seconds | {
            "label": embedded - began, "model": modelled - embedded, "align": aligned - modelled,
        }  # fmt: skip
        similarity = found.similarity[0].float().numpy()
        timeline = _timeline(features, steps, meta, notes)
        return Finding(timeline, similarity, text_of, segment_vectors, slots, seen, spent)

    # -- names and provenance -----------------------------------------------------------------------------------

    def bank(self, texts: Sequence[str] | None = None) -> PhraseBank:
        """The phrase bank in the encoder's space, loaded once."""
        key = "" if texts is None else "\n".join(texts)
        if key not in self._banks:
            self._banks[key] = load_bank(self.encoder, texts)
        return self._banks[key]

    def _bank_here(self, texts: Sequence[str] | None, notes: list[str], without: str) -> PhraseBank | None:
        """The bank; None, with a note, where the encoder is a table of vectors that lacks the one that ships."""
        try:
            return self.bank(texts)
        except InputError as error:
            if texts is not None:
                raise
            notes.append(f"no phrase bank, so {without}: {error}")
            return None

    def _present(
        self, texts: NDArray[Any], slots: Vectors, seen: Features, notes: list[str]
    ) -> NDArray[np.bool_] | None:
        """(M,) which texts (M, D) are in the video; None, with a note, where there is nothing to judge that by."""
        if (pictures := getattr(self.encoder, "pictures", None)) is not None:
            return best_fit(texts, seen.vectors, pictures) >= PRESENT_SEEN
        bank = self._bank_here(None, notes, "every text is assumed to be present")
        return None if bank is None else present_texts(texts, slots, seen.vectors, bank)

    def _shares(self, spoken: Candidates, looks: Vectors) -> NDArray[np.float64] | None:
        """(M, L) the share of the phrase bank that fits each step (M, D) worse than each spoken name does; None where
        the encoder's pictures are not known."""
        bank = self._bank_here(None, [], "")
        if bank is None or bank.pictures is None:
            return None
        return bank.shares_below(self.encoder.encode_text(spoken.names), looks)

    def _seen(
        self, vectors: tuple[Vectors, Vectors], video: Vectors, texts: Sequence[str] | None, notes: list[str]
    ) -> list[Name | None]:
        """Names from the phrases ``texts``, or from those that ship, that are nearest to what steps look like by their
        slots and by their frames (M, D)."""
        step_vectors, segment_vectors = vectors
        bank = self._bank_here(texts, notes, "steps are not named")
        # of the phrases that ship no guess by pictures is good enough: ``stepformer bench names``
        if bank is None or (texts is None and bank.pictures is not None):
            return [None] * len(segment_vectors)
        # the statistics are of pictures, which slots are not
        looks = segment_vectors if bank.pictures else unit(step_vectors) + unit(segment_vectors)
        return guess(looks, bank, video)

    def provenance(self, command: str, options: dict[str, Any]) -> dict[str, Any]:
        """What every output carries: version, model and its hash, encoder, options."""
        spec = self._encoder_spec
        loaded = self.__dict__.get("encoder")
        return {
            "stepformer": __version__,
            "command": command,
            "model": {"name": Path(self.name).name, "hash": self.checkpoint.hash},
            "encoder": {"name": loaded.name, "fingerprint": loaded.fingerprint}
            if loaded is not None
            else {"name": spec if isinstance(spec, str) else self.checkpoint.encoder},
            "options": options,
        }


def _timeline(features: Features, steps: tuple[Step, ...], meta: dict[str, Any], notes: Sequence[str]) -> Timeline:
    """The steps of a video, with what a user should know of them."""
    notes = [*features.problems, *notes]
    return Timeline(features.video, features.duration_s, steps, meta | {"notes": notes} if notes else meta)


def _all(output: Slots) -> torch.Tensor:
    """(1, N) the mask of one video."""
    return torch.ones(output.frames.shape[:2], dtype=torch.bool)


def _at_working_rate(features: Features) -> Features:
    factor = max(1, int(features.rate_hz / _FINEST_HZ), -(-len(features) // _MOST_FRAMES))
    return features.pooled(factor)


def _is_still(features: Features) -> bool:
    x = unit(features.cutting)
    return len(x) > 1 and float((x - x.mean(0)).var(0).sum()) < _STILL


def _vectors_of(pieces: Sequence[Segment], slots: Vectors, vectors: Vectors) -> tuple[Vectors, Vectors]:
    """(M, D) what each step is by its slot, and by the mean of its frames."""
    segment = np.asarray([vectors[p.first : p.last].mean(0) for p in pieces], np.float32).reshape(-1, vectors.shape[1])
    by_slot = [slots[p.row] if 0 <= p.row < len(slots) else mean for p, mean in zip(pieces, segment, strict=True)]
    return np.asarray(by_slot, np.float32).reshape(-1, vectors.shape[1]), segment


def span_s(piece: Segment, features: Features) -> tuple[float, float]:
    """Seconds of a piece; the last ends where the video does, not where the last second would."""
    end_s = features.duration_s if piece.last >= len(features) else piece.last / features.rate_hz
    start_s = min(piece.first / features.rate_hz, features.duration_s)
    return start_s, max(start_s, min(end_s, features.duration_s))


def _step(piece: Segment, name: Name | None, similarity: Any, features: Features) -> Step:
    """One step; its score is its slot's mean similarity with its frames, or without a slot how alike they are."""
    if piece.row >= 0:
        score = float(similarity[piece.row, piece.first : piece.last].mean())
    else:
        frames = unit(features.cutting[piece.first : piece.last])
        score = float(np.linalg.norm(frames.mean(0)) ** 2)
    return Step(
        *span_s(piece, features), label=None if name is None else name.text, score=round(score, 4),
        slot=piece.row if piece.row >= 0 else None, meta={} if name is None else name.meta(),
    )  # fmt: skip


__all__ = ["Finding", "StepFormer"]
