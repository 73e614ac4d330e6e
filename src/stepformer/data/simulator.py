"""Synthetic narrated videos, made of real pictures and real sentences, on the device, a batch at a time.

A video is a row of *shots*. A shot of a step keeps one picture that shows the step, or is nearest to it of all that
there are, as the encoder's image tower returned it: with the tower's own gap between pictures and texts and its own
errors. Then

    frame = picture + look (the video's scene) + clutter (something else in the shot) + fast (something for one frame)

where scene, clutter and flashes are real pictures too, less the mean picture; the clutter moves from one picture to
another within the shot. Some shots of a step show another moment of the task; between steps the video shows
background pictures, or moments of the task.

Narration has what real narration has: steps not said, said early or late, said in other words, and more irrelevant
phrases than relevant ones. Every batch is a function of (seed, step) alone, so a run can resume anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.core.config import SimConfig
from stepformer.core.devices import Beside
from stepformer.data.world import NEIGHBOURS, OWNERS, PARAPHRASES, Videos, World
from stepformer.errors import UsageError

_MOST_FRAMES = 4096  # of a video that is validated on


@dataclass(frozen=True, slots=True)
class Sight:
    """How videos look. `stepformer bench calibrate --fit` found these values: with them, ground-truth texts aligned to
    simulated CrossTask videos score about what the paper reports for real UniVL features (docs/simulator.md)."""

    look: float = 0.2
    clutter: float = 0.15
    fast: float = 0.1
    stray: float = 0.08  # share of a step's shots that show another moment of the task
    related: float = 0.25  # share of the shots between steps that show a moment of the task
    shot_s: float = 6.0  # mean length of a shot


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


def _seed(seed: int, step: int, salt: int = 0) -> int:
    return (seed * 1_000_003 + step * 7_919 + salt) % (2**63 - 1)


def _uniform(g: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, device=g.device, generator=g)


class _Recorded:
    """Batches of one size as a CUDA graph: some 250 small kernels are started with one call, and nothing waits."""

    def __init__(self, make: Callable[[torch.Generator], Batch], device: torch.device) -> None:
        self._generator, self._graph = torch.Generator(device=device), torch.cuda.CUDAGraph()
        self._graph.register_generator_state(self._generator)
        with torch.cuda.device(device):
            warm_up = Beside(device, 11)
            with warm_up:
                make(self._generator)  # what is set up at its first use cannot be recorded
            warm_up.join()
            with torch.cuda.graph(self._graph):
                self._made = make(self._generator)

    def __call__(self, seed: int) -> Batch:
        self._generator.manual_seed(seed)
        self._graph.replay()
        return Batch(*(value.clone() for value in self._made))  # the next replay overwrites it


class _Pool:
    """Numbers by owner, to draw from: ``draw(owner)`` gives one of that owner's for each entry."""

    def __init__(self, parts: list[Tensor], device: torch.device) -> None:
        self.values = torch.cat(parts).to(device)
        self.counts = torch.tensor([len(part) for part in parts], device=device)
        self.first = self.counts.cumsum(0) - self.counts

    def draw(self, owner: Tensor, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        """owner (B,) -> (B, *shape) numbers."""
        count = self.counts[owner].view(-1, *(1,) * len(shape))
        place = (_uniform(g, len(owner), *shape) * count).long()
        return self.values[self.first[owner].view_as(count) + torch.minimum(place, count - 1)]


class Simulator:
    """Draws batches from a world. ``batch(step)`` is the same for the same seed and step, on the same kind of device.

    On a GPU every batch has the same shape, the largest there can be, so that making one is a recorded CUDA graph.
    """

    def __init__(
        self, world: World, config: SimConfig | None = None, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.world, self.config, self.seed = world, config or SimConfig(), seed
        self.device = torch.device(device)
        self.dim = world.dim
        self.vectors = world.vectors.to(self.device)
        self.pictures = world.pictures.to(self.device)
        self.shows = world.shows.to(self.device)
        self.text_owner = world.text_owner.to(self.device)
        self.neighbours = world.neighbours.to(self.device)
        self.paraphrases = world.paraphrases.to(self.device)
        self.train = world.train.to(self.device)
        self.pools = self._pools()
        self.shares = torch.tensor([share for _, share in self.pools], device=self.device)
        self.fillers = self._fillers()
        self.passing, self.backgrounds = (
            _Pool([world.owned_pictures(owner, background) for owner in OWNERS], self.device)
            for background in (False, True)
        )
        # the mean picture of training: what a model may know, and what looks and clutter are measured from
        self.centre = self.pictures[world.owned_pictures("train", background=False).to(self.device)].mean(0)
        self.text_centre = self.vectors[self.text_owner == OWNERS.index("train")].mean(0)
        self.encoder, self.origin = world.encoder, world.meta.get("licences")
        axes = torch.randn((self.dim, self.dim), generator=torch.Generator().manual_seed(0))
        self._axes = torch.linalg.qr(axes).Q.to(self.device)
        self._recorded: dict[int, _Recorded] = {}  # by size of batch

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

    def _fillers(self) -> _Pool:
        """What may be said beside the steps, by owner; a third of it sounds like a step."""
        world = self.world
        names = [name for name, share in self.config.sources if share > 0] or list(world.sources)
        allowed = torch.tensor([*world.source_index(names), world.sources.index("howto100m-phrases")])
        parts = []
        for number, owner in enumerate(OWNERS):
            mine = world.text_owner[world.fillers] == number
            if owner == "train":
                steps = torch.cat([self.train.steps[members].flatten() for members, _ in self.pools]).cpu()
                mine &= torch.isin(world.filler_sources, allowed)
            else:
                steps = world.split(owner).steps if owner in world.splits else torch.tensor([-1])
            steps = torch.unique(steps[steps >= 0])
            talk = world.fillers[mine]
            some = steps[torch.linspace(0, len(steps) - 1, max(1, len(talk) // 2)).long()] if len(steps) else steps
            parts.append(torch.cat((talk, some)))
        return _Pool(parts, self.device)

    # -- drawing videos -----------------------------------------------------------------------------------------

    def _draw(self, count: int, g: torch.Generator) -> Videos:
        """``count`` training videos with at most ``max_steps`` steps each, all with times."""
        which = torch.multinomial(self.shares, count, replacement=True, generator=g)

        def members() -> Tensor:
            index = torch.zeros(count, dtype=torch.long, device=self.device)
            for number, (pool, _) in enumerate(self.pools):
                drawn = pool[torch.randint(len(pool), (count,), device=self.device, generator=g)]
                index = torch.where(which == number, drawn, index)
            return index

        videos = self._window(self.train.pick(members()), g)
        other = self._window(self.train.pick(members()), g)
        return self._with_times(self._composed(videos, other, g), g)

    def _composed(self, videos: Videos, other: Videos, g: torch.Generator) -> Videos:
        """Some videos end as others do: what comes next is not always what came next in the one that was learned."""
        there, others = ((v.steps >= 0).sum(1, keepdim=True) for v in (videos, other))
        u = _uniform(g, 3, len(there), 1)
        chosen = (u[0] < self.config.composed) & (there > 1) & (others > 1)
        cut = 1 + (u[1] * (there - 1)).long()  # steps taken from the first
        start = 1 + (u[2] * (others - 1)).long()  # where the second is entered
        column = torch.arange(videos.steps.shape[1], device=self.device)
        place = column - cut + start
        tail = torch.where(place < others, other.steps.gather(1, place.clamp(0, len(column) - 1)), -1)
        steps = torch.where(chosen & (column >= cut), tail, videos.steps)
        return replace(
            videos,
            steps=steps,
            kinds=torch.where(chosen, torch.where(steps >= 0, column, -1), videos.kinds),
            starts=videos.starts.masked_fill(chosen, math.nan),
            ends=videos.ends.masked_fill(chosen, math.nan),
            durations=videos.durations.masked_fill(chosen[:, 0], math.nan),
        )

    def _window(self, videos: Videos, g: torch.Generator) -> Videos:
        """A random run of ``max_steps`` consecutive steps where a procedure has more."""
        S = self.config.max_steps
        total = (videos.steps >= 0).sum(1)
        spare = (total - S).clamp(min=0)
        first = torch.minimum((_uniform(g, len(total)) * (spare + 1)).long(), spare)
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
        background = _uniform(g, B, 1) * 1.6 + 0.2
        lengths = torch.where(there, (lognormal((B, S), 8.0, 0.8) * pace).clamp(1.5, 90.0), 0.0)
        pauses = (lognormal((B, S + 1), 7.0, 0.9) * pace * background).clamp(0.0, 90.0)
        pauses = torch.where(_uniform(g, B, S + 1) < 0.25, 0.0, pauses)
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
        seed = _seed(self.seed, step)
        if self.device.type == "cuda":
            if size not in self._recorded:
                self._recorded[size] = _Recorded(lambda g: self._make(size, g, padded=True), self.device)
            return self._recorded[size](seed)
        return self._make(size, torch.Generator(self.device).manual_seed(seed), padded=False)

    def _make(self, size: int, g: torch.Generator, padded: bool) -> Batch:
        videos = self._draw(size, g)
        made = self.render(videos, Sight(), self.config.max_frames, g, self.config.jitter, padded)
        # what a picture shows must not be memorised: there are a few thousand of them
        noise = torch.randn(made.video.shape, device=self.device, generator=g) * self.config.noise / self.dim**0.5
        made = made._replace(video=F.normalize(made.video + noise, dim=-1).masked_fill(~made.video_mask[..., None], 0))
        return self._turned(made, g) if self.config.turned else made

    def _turned(self, made: Batch, g: torch.Generator) -> Batch:
        """The batch with a random share of axes exchanged and mirrored, about the mean picture and the mean text.

        The axes are random directions, none of which means anything. How vectors lie to each other stays, and so does
        the gap between pictures and texts. With all axes, what a picture shows only follows from the rest of its
        video, as with pictures never seen before.
        """
        order = _uniform(g, self.dim).argsort()[: round(self.config.turned * self.dim)]
        place, sign = torch.arange(self.dim, device=self.device), torch.ones(self.dim, device=self.device)
        place[order] = order.roll(1)
        sign[order] = torch.randint(0, 2, order.shape, device=self.device, generator=g) * 2.0 - 1.0
        basis = (self._axes[:, place] * sign) @ self._axes.T  # no decomposition: that would wait for the device

        def turn(x: Tensor, mean: Tensor, mask: Tensor) -> Tensor:
            return F.normalize((x - mean) @ basis + mean, dim=-1).masked_fill(~mask[..., None], 0)

        return made._replace(
            video=turn(made.video, self.centre, made.video_mask),
            phrases=turn(made.phrases, self.text_centre, made.phrase_mask),
        )

    def render_all(self, videos: Videos, sight: Sight | None = None, seed: int = 0, size: int = 64) -> list[Batch]:
        """Every video of a split, in order, in batches of ``size``, at one frame per second: for validation and tests.

        The same batches on every device of one kind; what is drawn depends on ``size``.
        """
        out = []
        for first in range(0, len(videos), size):
            part = videos.pick(torch.arange(first, min(first + size, len(videos)))).to(self.device)
            g = torch.Generator(self.device).manual_seed(_seed(seed, first, salt=77))
            out.append(self.render(self._with_times(part, g), sight or Sight(), _MOST_FRAMES, g))
        return out

    def render(
        self, videos: Videos, sight: Sight, max_frames: int, g: torch.Generator, jitter: float = 0.0,
        padded: bool = False,
    ) -> Batch:  # fmt: skip
        """Frames and narration of videos with times (B of them).

        padded: N and L are the most there can be instead of what these videos need, which the host would wait for.
        """
        there = videos.steps >= 0
        # a video too long for max_frames is seen at fewer frames per second, the same steps in the same places
        per_frame = (videos.durations / max_frames).clamp(min=1.0)
        lengths = (videos.durations / per_frame).floor().long().clamp(2, max_frames)  # (B,) frames
        starts, ends = (x.nan_to_num(nan=-1.0) / per_frame[:, None] for x in (videos.starts, videos.ends))
        N = max_frames if padded else int(lengths.max())
        labels = self._labels(starts, ends, there, N)
        mask = torch.arange(N, device=self.device) < lengths[:, None]
        labels = torch.where(mask, labels, -1)
        frames = self._frames(videos, labels, per_frame, sight, g, jitter, padded).masked_fill(~mask[..., None], 0.0)
        narration = self._narration(videos, starts, ends, lengths, per_frame, g, padded)
        phrases, phrase_mask, phrase_steps, phrase_ids, phrase_times = narration
        return Batch(frames, mask, phrases, phrase_mask, labels, videos.steps, phrase_steps, phrase_ids, phrase_times)

    @staticmethod
    def _labels(starts: Tensor, ends: Tensor, there: Tensor, N: int) -> Tensor:
        """(B, N) step instance at the middle of each frame; the last annotation wins where two overlap."""
        middle = torch.arange(N, device=starts.device) + 0.5
        inside = (starts[:, :, None] <= middle) & (middle < ends[:, :, None]) & there[:, :, None]  # (B, S, N)
        number = torch.arange(starts.shape[1], device=starts.device)[None, :, None]
        return torch.where(inside, number, -1).amax(1)

    def _frames(
        self, videos: Videos, labels: Tensor, per_frame: Tensor, sight: Sight, g: torch.Generator, jitter: float,
        padded: bool,
    ) -> Tensor:  # fmt: skip
        """(B, N, D) unit frame vectors."""
        B, N = labels.shape
        D = self.dim
        ids = videos.steps.clamp(min=0)
        count = (videos.steps >= 0).sum(1).clamp(min=1)
        owner = self.text_owner[ids[:, 0]].clamp(min=0)  # (B,)

        def varied(value: float) -> Tensor:
            """(B, 1, 1): a sight's value, in training another one in each video."""
            return value * torch.exp(jitter * torch.randn((B, 1, 1), device=self.device, generator=g))

        # shots end where a step does, and by themselves
        cut = _uniform(g, B, N) < per_frame[:, None] / sight.shot_s
        cut[:, 1:] |= labels[:, 1:] != labels[:, :-1]
        shot = cut.long().cumsum(1) - cut[:, :1].long()  # (B, N)
        Q = N if padded else int(shot.max()) + 1
        first = torch.full((B, Q), N - 1, device=self.device).scatter_reduce_(
            1, shot, torch.arange(N, device=self.device).expand(B, N), "amin"
        )
        label = labels.gather(1, first)  # (B, Q) what the shot is part of
        any_step = (_uniform(g, B, Q) * count[:, None]).long()
        chance = _uniform(g, B, Q)
        other = chance < torch.where(label >= 0, sight.stray, sight.related)
        shown = torch.where(other, any_step, label)  # (B, Q) step instance that is seen, -1 background
        # a video has few pictures of a step: repeats of the step share them, because they share the text
        text = ids.gather(1, shown.clamp(min=0))
        mine = torch.randint(1 << 30, (B, 1), device=self.device, generator=g)
        again = torch.randint(2, (B, Q), device=self.device, generator=g)
        pick = (text * 7919 + mine + 5 * again) % self.shows.shape[1]
        seen = self.shows[text, pick]  # (B, Q) pictures
        looks = self.backgrounds.draw(owner, (3,), g)  # a video comes back to a few backgrounds
        behind = looks.gather(1, torch.randint(3, (B, Q), device=self.device, generator=g))
        picture = self.pictures[torch.where(shown >= 0, seen, behind)]
        scene = self.pictures[self.backgrounds.draw(owner, (1,), g)] - self.centre  # (B, 1, D)
        picture = picture + varied(sight.look) * scene
        clutter = varied(sight.clutter) * (self.pictures[self.passing.draw(owner, (Q, 2), g).flatten(1)] - self.centre)
        clutter = clutter.view(B, Q, 2, D)
        flash = sight.fast * (self.pictures[self.passing.draw(owner, (N,), g)] - self.centre)

        def at_frames(x: Tensor) -> Tensor:
            return x.gather(1, shot[..., None].expand(-1, -1, D))

        # within a shot the clutter moves from one picture to the other
        length = torch.zeros((B, Q), device=self.device).scatter_add_(1, shot, torch.ones((B, N), device=self.device))
        since = torch.arange(N, device=self.device) - first.gather(1, shot)
        share = ((since + 0.5) / length.gather(1, shot))[..., None]
        frames = at_frames(picture + clutter[:, :, 0]) + share * at_frames(clutter[:, :, 1] - clutter[:, :, 0]) + flash
        return F.normalize(frames, dim=-1)

    def _narration(
        self, videos: Videos, starts: Tensor, ends: Tensor, lengths: Tensor, per_frame: Tensor, g: torch.Generator,
        padded: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Phrases in order of time: vectors (B, L, D), mask, step instance named, text id, time in frames."""
        config = self.config
        there = videos.steps >= 0
        B, S = there.shape
        ids = videos.steps.clamp(min=0)
        said = there & (_uniform(g, B, S) < config.spoken)
        shift = torch.randn((B, S), device=self.device, generator=g) * config.shift_s / per_frame[:, None]
        when = starts + _uniform(g, B, S) * (ends - starts) + shift
        # other words: a known paraphrase where the step has one, else the text mixed with a neighbouring sentence
        choice = torch.randint(PARAPHRASES, (B, S), device=self.device, generator=g)
        paraphrase = self.paraphrases[ids, choice]
        known = paraphrase >= 0
        words = torch.where(known, paraphrase, ids)
        near = self.neighbours[words, torch.randint(NEIGHBOURS, (B, S), device=self.device, generator=g)]
        mixed = self.vectors[words] + config.reworded * (~known)[..., None] * self.vectors[near]
        spoken = F.normalize(mixed, dim=-1)

        most = math.ceil(float(self.config.max_frames) / config.irrelevant_every_s * 1.5) + 2
        expected = lengths * per_frame / config.irrelevant_every_s
        fillers = torch.arange(most, device=self.device) < torch.poisson(expected, generator=g)[:, None]
        filler_ids = self.fillers.draw(self.text_owner[ids[:, 0]].clamp(min=0), (most,), g)
        filler_when = _uniform(g, B, most) * lengths[:, None]

        when = torch.cat((torch.where(said, when, math.inf), torch.where(fillers, filler_when, math.inf)), 1)
        order = when.argsort(1)
        vectors = torch.cat((spoken, self.vectors[filler_ids]), 1)
        instance = torch.cat((torch.arange(S, device=self.device).expand(B, S), torch.full_like(filler_ids, -1)), 1)
        text_ids = torch.cat((words, filler_ids), 1)
        L = when.shape[1] if padded else int((said.sum(1) + fillers.sum(1)).max().clamp(min=1))
        order = order[:, :L]
        present = when.gather(1, order) < math.inf
        return (
            vectors.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1])).masked_fill(~present[..., None], 0.0),
            present,
            torch.where(present, instance.gather(1, order), -1),
            torch.where(present, text_ids.gather(1, order), -1),
            torch.where(present, when.gather(1, order), 0.0),
        )
