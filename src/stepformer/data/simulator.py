"""Narrated videos that never were: frames and phrases in text space, made on the device, a batch at a time.

A frame of step *t* is what a frozen encoder might return for it. It is mixed from meanings, not from white noise,
because white noise in hundreds of dimensions hides nothing:

    content = A step + C task mean + D1 another step of the task + D2 a phrase for 6 s + D3 a phrase for 1 s
              + looks of segment and video + white noise

where ``step`` is the step's text mixed with one of its nearest sentences, fixed per video, so that the label is
not the exact template of what is seen; a background frame has a stock look (talking head, title card, ...) in its
place. An :class:`EncoderModel` then distorts the content *systematically*, as real encoders do: the same step always
looks like the same wrong things, and that a model can learn to undo.

Narration has what real narration has: steps not said, said early or late, said in other words, and more irrelevant
phrases than relevant ones. Every batch is a function of (seed, step) alone, so a run can resume anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.core.config import SIMULATED_SPACE, SimConfig
from stepformer.data.world import PARAPHRASES, Videos, World
from stepformer.errors import UsageError

EncoderKind = Literal["plain", "concepts", "joint"]


@dataclass(frozen=True, slots=True)
class EncoderModel:
    """How a simulated encoder sees. ``strength`` is A, the share of the true step; the rest is calibrated around it.

    plain: content as it is (a captioner: its words, embedded). concepts: content is seen as a soft assignment to class
    names (temperature ``tau``), carried back into text space (a classifier). joint: content through one fixed
    linear map with a fixed gap (a two-tower model such as CLIP or UniVL).
    """

    kind: EncoderKind = "concepts"
    strength: float = 1.0  # A
    task: float = 0.6  # C
    sibling: float = 1.0  # D1
    slow: float = 1.0  # D2
    fast: float = 1.0  # D3
    stock: float = 1.0  # background look
    paraphrase: float = 0.7  # share of a neighbouring sentence in what a step looks like
    look: float = 0.3  # segment and video looks
    white: float = 0.3
    tau: float = 0.05
    mix: float = 0.15  # of what co-occurs with the content
    gap: float = 0.5


# `stepformer simulate --calibrate`: ground-truth texts aligned to the simulated CrossTask validation videos score about
# what the paper reports for real UniVL features (docs/simulator.md says how near each comes; `--fit` found these)
ENCODERS: dict[str, EncoderModel] = {
    "plain": EncoderModel("plain", strength=0.57, task=0.81, sibling=1.11, slow=0.98, fast=0.64, stock=0.91),
    "concepts": EncoderModel("concepts", strength=1.16, task=0.43, sibling=1.04, slow=0.57, fast=0.63, stock=1.36),
    "joint": EncoderModel("joint", strength=0.68, task=0.83, sibling=1.16, slow=0.81, fast=1.26, stock=1.14, mix=0.12),
}


class Batch(NamedTuple):
    """One batch, padded. ``labels`` are for looking and testing; training never sees them."""

    video: Tensor  # (B, N, D) unit frame vectors
    video_mask: Tensor  # (B, N)
    phrases: Tensor  # (B, L, D) unit phrase vectors, in order of time
    phrase_mask: Tensor  # (B, L)
    labels: Tensor  # (B, N) index of the step instance of each frame, -1 background
    steps: Tensor  # (B, S) text ids of the step instances, -1 padding
    phrase_steps: Tensor  # (B, L) step instance that a phrase names, -1 irrelevant
    phrase_ids: Tensor  # (B, L) text id behind each phrase
    phrase_times: Tensor  # (B, L) when it is said, in frames; 0 padding


def _seeded(device: torch.device, seed: int, step: int, salt: int = 0) -> torch.Generator:
    generator = torch.Generator(device=device)
    generator.manual_seed((seed * 1_000_003 + step * 7_919 + salt) % (2**63 - 1))
    return generator


class Simulator:
    """Draws batches from a world. ``batch(step)`` is the same for the same seed and step, on the same device."""

    def __init__(
        self, world: World, config: SimConfig | None = None, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.world, self.config, self.seed = world, config or SimConfig(), seed
        self.device = torch.device(device)
        for name in self.config.encoders:
            if name not in ENCODERS:
                raise UsageError(f"no simulated encoder {name!r}; there are {', '.join(ENCODERS)}")
        self.vectors = world.vectors.to(self.device)
        self.neighbours = world.neighbours.to(self.device)
        self.paraphrases = world.paraphrases.to(self.device)
        self.concepts = world.concepts.to(self.device)
        self.train = world.train.to(self.device)
        self.pools = self._pools()
        self.fillers, self.distractors = self._phrase_pools()
        self.stock_looks = world.stock.to(self.device)
        # what belongs to the encoder and not to a video is drawn once, the same for every seed
        fixed = torch.Generator().manual_seed(20230618)
        D = self.dim = world.dim
        self.encoder, self.origin = SIMULATED_SPACE, world.meta.get("licences")
        self.gap = F.normalize(torch.randn(D, generator=fixed), dim=-1).to(self.device)
        # co-occurrence: whatever looks like a is also seen as b, for 256 fixed pairs of class names (the step texts
        # of a world play no part in it, so that no tested text does)
        pairs = torch.randint(len(world.concepts), (2, 256), generator=fixed)
        a, b = world.concepts[pairs[0]], world.concepts[pairs[1]]
        self.mixing = (a.T @ b).to(self.device)

    def held_out_batches(self, size: int) -> tuple[Batch, ...]:
        """None: simulated runs are validated on whole videos of other tasks, not by their loss."""
        return ()

    def describe(self) -> str:
        """Nothing: the config says it all."""
        return ""

    def _pools(self) -> list[tuple[Tensor, float]]:
        config, train = self.config, self.train
        if not config.sources:
            return [(torch.arange(len(train), device=self.device), 1.0)]
        pools = []
        for (_, share), number in zip(
            config.sources, self.world.source_index([name for name, _ in config.sources]), strict=True
        ):
            members = torch.nonzero(train.sources == number).squeeze(1)
            if len(members) and share > 0:
                pools.append((members, share))
        if not pools:
            raise UsageError(f"no training procedures in the sources {', '.join(n for n, _ in config.sources)}")
        return pools

    def _phrase_pools(self) -> tuple[Tensor, Tensor]:
        """What may be said beside the steps, and what may be seen beside them: ids of the chosen sources only."""
        world = self.world
        names = [name for name, share in self.config.sources if share > 0] or list(world.sources)
        allowed = torch.tensor(world.source_index(names), device=self.device)
        steps = torch.cat([self.train.steps[members].flatten() for members, _ in self.pools])
        steps = torch.unique(steps[steps >= 0])
        talk = world.fillers.to(self.device)[torch.isin(world.filler_sources.to(self.device), allowed)]
        # narrators also speak of other things that could be steps: a third of what is irrelevant sounds like one
        third = steps[torch.linspace(0, len(steps) - 1, max(1, len(talk) // 2), device=self.device).long()]
        return (torch.cat((talk, third)) if len(talk) else steps), steps

    # -- drawing videos -----------------------------------------------------------------------------------------

    def _draw(self, count: int, g: torch.Generator) -> Videos:
        """``count`` training videos with at most ``max_steps`` steps each, all with times."""
        shares = torch.tensor([share for _, share in self.pools], device=self.device)
        which = torch.multinomial(shares, count, replacement=True, generator=g)
        index = torch.zeros(count, dtype=torch.long, device=self.device)
        for number, (members, _) in enumerate(self.pools):
            draw = members[torch.randint(len(members), (count,), device=self.device, generator=g)]
            index = torch.where(which == number, draw, index)
        videos = self.train.pick(index)
        return self._with_times(self._window(videos, g), g)

    def _window(self, videos: Videos, g: torch.Generator) -> Videos:
        """A random run of ``max_steps`` consecutive steps where a procedure has more."""
        S = self.config.max_steps
        total = (videos.steps >= 0).sum(1)
        spare = (total - S).clamp(min=0)
        first = (torch.rand(len(total), device=self.device, generator=g) * (spare + 1)).long().clamp(max=spare.max())
        first = torch.minimum(first, spare)
        place = first[:, None] + torch.arange(S, device=self.device)
        inside = place < total[:, None]
        place = place.clamp(max=videos.steps.shape[1] - 1)

        def take(x: Tensor, empty: float) -> Tensor:
            return torch.where(inside, x.gather(1, place), torch.full_like(x[:, :1], empty))

        starts, ends = take(videos.starts, math.nan), take(videos.ends, math.nan)
        cut = first > 0  # a cut-out excerpt starts shortly before its first step
        shift = torch.where(cut, (starts[:, 0] - 5.0).clamp(min=0), 0.0).nan_to_num()
        last = ends.nan_to_num(nan=-1.0).amax(1)
        # a procedure without times stays without: its excerpt gets times of its own
        excerpt = (spare > 0) & ~videos.durations.isnan()
        duration = torch.where(excerpt, last + 5.0, videos.durations) - shift
        return replace(
            videos,
            steps=take(videos.steps, -1),
            kinds=take(videos.kinds, -1),
            starts=starts - shift[:, None],
            ends=ends - shift[:, None],
            durations=duration,
        )

    def _with_times(self, videos: Videos, g: torch.Generator) -> Videos:
        """Times for procedures that have none: log-normal steps with log-normal pauses between them."""
        there = videos.steps >= 0
        B, S = there.shape

        def lognormal(shape: tuple[int, ...], median: float, spread: float) -> Tensor:
            return median * torch.exp(spread * torch.randn(shape, device=self.device, generator=g))

        # each video has its own pace and its own share of background, as CrossTask, COIN and YouCook2 differ
        pace = lognormal((B, 1), 1.0, 0.35)
        background = torch.rand((B, 1), device=self.device, generator=g) * 1.6 + 0.2
        lengths = torch.where(there, (lognormal((B, S), 8.0, 0.8) * pace).clamp(1.5, 90.0), 0.0)
        pauses = (lognormal((B, S + 1), 7.0, 0.9) * pace * background).clamp(0.0, 90.0)
        pauses = torch.where(torch.rand((B, S + 1), device=self.device, generator=g) < 0.25, 0.0, pauses)
        pauses[:, 1:] = torch.where(there, pauses[:, 1:], 0.0)
        ends = (lengths + pauses[:, :S]).cumsum(1)
        starts = ends - lengths
        tail = pauses[:, S] + 3.0
        sampled = videos.durations.isnan()
        return replace(
            videos,
            starts=torch.where(sampled[:, None], starts, videos.starts),
            ends=torch.where(sampled[:, None], ends, videos.ends),
            durations=torch.where(sampled, torch.where(there, ends, 0.0).amax(1) + tail, videos.durations),
        )

    # -- rendering ----------------------------------------------------------------------------------------------

    def batch(self, step: int, size: int) -> Batch:
        """The training batch of one step."""
        g = _seeded(self.device, self.seed, step)
        videos = self._draw(size, g)
        return self.render(videos, self.config.encoders, self.config.max_frames, g)

    def render_all(
        self, videos: Videos, encoder: str | EncoderModel, seed: int = 0, size: int = 32, max_frames: int = 4096
    ) -> list[Batch]:
        """Every video of a split, in order, in batches, at one frame a second: for validation and tests."""
        out = []
        for first in range(0, len(videos), size):
            part = videos.pick(torch.arange(first, min(first + size, len(videos)))).to(self.device)
            g = _seeded(self.device, seed, first, salt=77)
            out.append(self.render(self._with_times(part, g), (encoder,), max_frames, g, jitter=False))
        return out

    def render(
        self,
        videos: Videos,
        encoders: tuple[str | EncoderModel, ...],
        max_frames: int,
        g: torch.Generator,
        jitter: bool = True,
    ) -> Batch:
        """Frames and narration of videos with times (B of them). One encoder a video, drawn evenly."""
        B = len(videos)
        there = videos.steps >= 0
        # a video too long for max_frames is seen at fewer frames a second, the same steps in the same places
        per_frame = (videos.durations / max_frames).clamp(min=1.0)
        lengths = (videos.durations / per_frame).floor().long().clamp(2, max_frames)  # (B,) frames
        starts, ends = (x.nan_to_num(nan=-1.0) / per_frame[:, None] for x in (videos.starts, videos.ends))
        N = int(lengths.max())
        labels = self._labels(starts, ends, there, N)
        mask = torch.arange(N, device=self.device) < lengths[:, None]
        labels = torch.where(mask, labels, -1)
        frames = self._frames(videos, labels, encoders, g, jitter)
        narration = self._narration(videos, starts, ends, lengths, per_frame, g)
        phrases, phrase_mask, phrase_steps, phrase_ids, phrase_times = narration
        frames = frames.masked_fill(~mask[..., None], 0.0)
        assert len(frames) == B
        return Batch(frames, mask, phrases, phrase_mask, labels, videos.steps, phrase_steps, phrase_ids, phrase_times)

    @staticmethod
    def _labels(starts: Tensor, ends: Tensor, there: Tensor, N: int) -> Tensor:
        """(B, N) step instance at the middle of each frame; the last annotation wins where two overlap."""
        middle = torch.arange(N, device=starts.device) + 0.5
        inside = (starts[:, :, None] <= middle) & (middle < ends[:, :, None]) & there[:, :, None]  # (B, S, N)
        number = torch.arange(starts.shape[1], device=starts.device)[None, :, None]
        return torch.where(inside, number, -1).amax(1)

    def _random_texts(self, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        """Vectors of random training steps, which are seen where they do not belong: (*shape, D)."""
        pool = self.distractors
        return self.vectors[pool[torch.randint(len(pool), shape, device=self.device, generator=g)]]

    def _neighbour(self, ids: Tensor, g: torch.Generator) -> Tensor:
        """Vector of one of the nearest sentences of each text."""
        pick = torch.randint(self.neighbours.shape[1], ids.shape, device=self.device, generator=g)
        return self.vectors[self.neighbours[ids].gather(-1, pick[..., None]).squeeze(-1)]

    def _frames(
        self, videos: Videos, labels: Tensor, encoders: tuple[str | EncoderModel, ...], g: torch.Generator, jitter: bool
    ) -> Tensor:
        B, N = labels.shape
        there = videos.steps >= 0
        ids = videos.steps.clamp(min=0)
        S = ids.shape[1]
        text = self.vectors[ids]  # (B, S, D)
        count = there.sum(1).clamp(min=1)
        task = (text * there[..., None]).sum(1) / count[:, None]
        models = [ENCODERS[e] if isinstance(e, str) else e for e in encoders]
        which = torch.randint(len(models), (B,), device=self.device, generator=g)

        def per_video(name: str) -> Tensor:
            values = torch.tensor([getattr(m, name) for m in models], device=self.device)
            return values[which][:, None, None]

        # one look of a step per video: repeats of a step share it, because they share the text and the draw
        share = per_video("paraphrase")
        pick = torch.randint(self.neighbours.shape[1], (B, 1), device=self.device, generator=g)
        pick = (pick + ids) % self.neighbours.shape[1]
        other = self.vectors[self.neighbours[ids].gather(-1, pick[..., None]).squeeze(-1)]
        seen = F.normalize(text + share * other, dim=-1)

        blocks = (torch.arange(N, device=self.device) + 0) // 6
        n_blocks = int(blocks[-1]) + 1
        sibling_index = (torch.rand((B, n_blocks), device=self.device, generator=g) * count[:, None]).long()
        sibling = seen.gather(1, sibling_index.clamp(max=S - 1)[..., None].expand(-1, -1, text.shape[-1]))
        slow = self._random_texts((B, n_blocks), g)
        fast = self._random_texts((B, N), g)
        stock_blocks = N // 12 + 1
        stock_pick = torch.randint(len(self.stock_looks), (B, stock_blocks), device=self.device, generator=g)
        stock = self.stock_looks[stock_pick][:, torch.arange(N, device=self.device) // 12]

        on = labels >= 0
        own = seen.gather(1, labels.clamp(min=0)[..., None].expand(-1, -1, text.shape[-1]))
        strength = per_video("strength")
        if jitter and self.config.strength_jitter:
            noise = torch.randn((B, 1, 1), device=self.device, generator=g)
            strength = strength * torch.exp(self.config.strength_jitter * noise)
        content = torch.where(on[..., None], strength * own, per_video("stock") * stock)
        content = content + per_video("task") * task[:, None]
        content = content + per_video("sibling") * sibling[:, blocks] + per_video("slow") * slow[:, blocks]
        content = content + per_video("fast") * fast
        D = text.shape[-1]
        looks = torch.randn((B, S + 1, D), device=self.device, generator=g)
        segment_look = looks.gather(1, (labels + 1)[..., None].expand(-1, -1, D))
        video_look = torch.randn((B, 1, D), device=self.device, generator=g)
        content = content + per_video("look") / math.sqrt(D) * (segment_look + video_look)
        content = content + per_video("white") / math.sqrt(D) * torch.randn((B, N, D), device=self.device, generator=g)

        kinds = [m.kind for m in models]
        out = F.normalize(content, dim=-1)
        if "concepts" in kinds:
            tau = per_video("tau")
            seen_as = ((out @ self.concepts.T) / tau).softmax(-1) @ self.concepts - self.concepts.mean(0)
            use = torch.tensor([k == "concepts" for k in kinds], device=self.device)[which]
            out = torch.where(use[:, None, None], F.normalize(seen_as, dim=-1), out)
        if "joint" in kinds:
            joint = F.normalize(out + per_video("mix") * (out @ self.mixing), dim=-1) + per_video("gap") * self.gap
            use = torch.tensor([k == "joint" for k in kinds], device=self.device)[which]
            out = torch.where(use[:, None, None], F.normalize(joint, dim=-1), out)
        return out

    def _narration(
        self, videos: Videos, starts: Tensor, ends: Tensor, lengths: Tensor, per_frame: Tensor, g: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Phrases in order of time: vectors (B, L, D), mask, step instance named, text id, time in frames."""
        config = self.config
        there = videos.steps >= 0
        B, S = there.shape
        ids = videos.steps.clamp(min=0)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, device=self.device, generator=g)

        said = there & (uniform(B, S) < config.spoken)
        shift = torch.randn((B, S), device=self.device, generator=g) * config.shift_s / per_frame[:, None]
        when = starts + uniform(B, S) * (ends - starts) + shift
        # other words: a known paraphrase where the step has one, else the text mixed with a neighbouring sentence
        choice = torch.randint(PARAPHRASES, (B, S), device=self.device, generator=g)
        paraphrase = self.paraphrases[ids].gather(-1, choice[..., None]).squeeze(-1)
        known = paraphrase >= 0
        words = torch.where(known, paraphrase, ids)
        mixed = self.vectors[words] + config.reworded * (~known)[..., None] * self._neighbour(words, g)
        spoken = F.normalize(mixed, dim=-1)

        most = math.ceil(float(self.config.max_frames) / config.irrelevant_every_s * 1.5) + 2
        expected = lengths * per_frame / config.irrelevant_every_s
        fillers = torch.arange(most, device=self.device) < torch.poisson(expected, generator=g)[:, None]
        filler_ids = self.fillers[torch.randint(len(self.fillers), (B, most), device=self.device, generator=g)]
        filler_when = uniform(B, most) * lengths[:, None]

        when = torch.cat((torch.where(said, when, math.inf), torch.where(fillers, filler_when, math.inf)), 1)
        order = when.argsort(1)
        vectors = torch.cat((spoken, self.vectors[filler_ids]), 1)
        instance = torch.cat((torch.arange(S, device=self.device).expand(B, S), torch.full_like(filler_ids, -1)), 1)
        text_ids = torch.cat((words, filler_ids), 1)
        L = int((said.sum(1) + fillers.sum(1)).max().clamp(min=1))
        order = order[:, :L]
        present = when.gather(1, order) < math.inf
        return (
            vectors.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1])).masked_fill(~present[..., None], 0.0),
            present,
            torch.where(present, instance.gather(1, order), -1),
            torch.where(present, text_ids.gather(1, order), -1),
            torch.where(present, when.gather(1, order), 0.0),
        )
