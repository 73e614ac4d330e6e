"""``stepformer bench encode``: decoding and encoding videos against real time, and where the time goes.

Decoding is timed with every frame decoded and with only what is wanted, in one run on the same file; the pictures must
be the same, or the command fails. Encoders whose weights are not here are timed with the same network untrained where
that can be built, and left out with the reason where not.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepformer.cli.options import add, positive
from stepformer.errors import MissingError, StepFormerError, UsageError

if TYPE_CHECKING:
    from stepformer.media import VideoInfo

HELP = """Times decoding and encoding on a video (default: the demo video if it has been pulled, and a generated one of
three minutes). Times are the best of the repeats. Processor time is printed beside wall-clock time, because
other work on the machine hardly changes it; the ratio is of processor time.

--pictures times only the image tower of encoder clip, on random pictures of 128 by 224 instead of a video: how many
vectors and structure vectors a device makes per second. The network is untrained, which takes just as long."""
EXAMPLES = [
    "stepformer bench encode",
    "stepformer bench encode talk.mp4 --encoders clip,openclip --seconds 30",
    "stepformer bench encode --encoders '' --json      # decoding alone",
    "stepformer bench encode --pictures 2048 --device cuda",
]


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One way of decoding one file; ``ratio``: how much less processor time than decoding every frame."""

    video: str
    wanted: str
    way: str
    seconds: float  # of video
    wall_s: float
    cpu_s: float
    x_real_time: float
    pictures_decoded: int
    seeks: int
    ratio: float


@dataclass(frozen=True, slots=True)
class EncodeRow:
    """One encoder on one file; times are for a second of video. ``note`` says what stands in for missing weights."""

    encoder: str
    seconds: float
    decode_s: float
    encode_s: float
    decode_cpu_s: float
    encode_cpu_s: float
    x_real_time: float
    note: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("video", nargs="?", type=Path, help="a video file")
    parser.add_argument("--pictures", type=positive, metavar="N", help="time the image tower alone (default: a video)")
    add(parser, "encoders", "seconds", "repeats", "threads", "device", seconds=8.0, threads=os.cpu_count() or 1)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    if args.repeats < 1 or args.threads < 1 or not args.seconds > 0:
        raise UsageError("--repeats, --threads and --seconds must be positive")
    import torch

    torch.set_num_threads(args.threads)
    from stepformer.cli.measured import report

    if args.pictures is not None:
        from stepformer.core.devices import torch_device

        args.device = str(torch_device(args.device))
        report(args, tower_rates(args.pictures, args.repeats, args.device))
        return 0
    with tempfile.TemporaryDirectory(prefix="stepformer-bench-") as scratch:
        videos = [args.video] if args.video is not None else list(_default_videos(Path(scratch)))
        decode = [row for video in videos for row in decode_rows(video, args.repeats, args.threads)]
        names = _encoder_names(args.encoders)
        encode = [row for name in names for row in encode_rows(name, videos[0], args.seconds, args.threads)]
    facts: dict[str, Any] = {"threads": args.threads}
    if args.json:
        facts |= {"decode": [asdict(row) for row in decode], "encode": [asdict(row) for row in encode]}
    else:
        print(_text(decode, encode, args.seconds))
    report(args, facts)
    return 0


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_rows(path: Path, repeats: int = 3, threads: int = 0) -> list[DecodeRow]:
    """Every way of decoding one file. Raises when two ways disagree on what is on screen."""
    from stepformer.media import probe
    from stepformer.media.decode import SEEK_GAP_S

    info = probe(path)
    rows = []
    for wanted, times_s, covered_s in _cases(info.duration_s):
        ways = [("every frame", False, 0.0), ("what is needed, read on", True, float("inf"))]
        if wanted == "1 in 60 s":
            ways.append(("what is needed, seek", True, SEEK_GAP_S))
        base, reference = 0.0, None
        for way, sparse, gap in ways:
            wall, cpu, decoder, stamps = _best(partial(_decode, path, info, times_s, sparse, gap, threads), repeats)
            if reference is None:
                base, reference = cpu, stamps
            elif stamps != reference:
                raise StepFormerError(f"{path}: {way} shows other pictures than {ways[0][0]}; please report this")
            counts = decoder.decoded, decoder.seeks
            rows.append(DecodeRow(path.name, wanted, way, covered_s, wall, cpu, covered_s / wall, *counts, base / cpu))
    return rows


def _cases(duration_s: float) -> Iterator[tuple[str, list[float], float]]:
    """(what is wanted, its seconds, how much of the video they cover); dense cases take the start of the video."""
    first = min(duration_s, 10.0)
    yield "16 a second", [(i + 0.5) / 16 for i in range(max(1, int(first * 16)))], first
    first = min(duration_s, 60.0)
    yield "1 a second", [i + 0.5 for i in range(max(1, int(first)))], first
    if duration_s > 10:
        yield "1 in 10 s", [10 * i + 5.0 for i in range(int((duration_s - 5) / 10) + 1)], duration_s
    if duration_s > 120:
        yield "1 in 60 s", [60 * i + 30.0 for i in range(int((duration_s - 30) / 60) + 1)], duration_s


def _decode(
    path: Path, info: VideoInfo, times_s: list[float], sparse: bool, gap: float, threads: int
) -> tuple[Any, list[float]]:
    """Pictures of 224 x 224, as an encoder would get them; what comes back is when each came on screen."""
    from stepformer.media.container import Problems
    from stepformer.media.decode import FrameDecoder
    from stepformer.media.picture import Painter

    decoder = FrameDecoder(path, info, Problems(path), sparse=sparse, seek_gap_s=gap, threads=threads)
    painter = Painter((224, 224))
    stamps = []
    for _, shown_s, frame in decoder.frames(times_s):
        painter(frame, decoder.pixel_aspect)
        stamps.append(round(shown_s, 4))
    return decoder, stamps


def _best(call: Callable[[], tuple[Any, list[float]]], repeats: int) -> tuple[float, float, Any, list[float]]:
    """The shortest wall and processor times of the repeats, and what the last gave."""
    wall = cpu = float("inf")
    for _ in range(repeats):
        began, worked = time.perf_counter(), time.process_time()
        decoder, stamps = call()
        wall = min(wall, time.perf_counter() - began)
        cpu = min(cpu, max(time.process_time() - worked, 1e-6))
    return wall, cpu, decoder, stamps


def _default_videos(scratch: Path) -> Iterator[Path]:
    from benchmarks.timecode import write_clip
    from stepformer.base import weights

    demo = weights.find("demo-video")
    if demo is not None:
        yield demo
    path = scratch / "generated.mp4"
    write_clip(path, (i / 25 for i in range(25 * 180)), size=(180, 320), options={"preset": "veryfast"})
    yield path


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode_rows(name: str, video: Path, seconds: float, threads: int) -> list[EncodeRow]:
    """One encoder on the first ``seconds`` of a video; no row for one that reads no video."""
    from stepformer import encoders

    note = ""
    try:
        encoder = encoders.load(name)
        if getattr(encoder, "wants", None) is None:
            return []
    except TypeError:  # captions and precomputed need a file to read from
        return []
    except (MissingError, UsageError) as error:
        untrained = _UNTRAINED.get(name.partition(":")[0])
        if untrained is None:
            return [EncodeRow(name, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, f"not measured: {error}")]
        encoder, note = untrained(), "weights not here: the same network, untrained"
    from stepformer.media import VideoReader

    count = max(1, round(seconds * encoder.rate_hz))
    reader = VideoReader(video, threads=threads)
    began, worked = time.perf_counter(), time.process_time()
    batches, have = [], 0
    for batch in reader.clips(encoder.wants, encoder.rate_hz, batch=4):
        batches.append(batch[: count - have])
        have += len(batches[-1])
        if have >= count:
            break
    decode_s, decode_cpu_s = time.perf_counter() - began, time.process_time() - worked
    encoded(encoder, batches[:1])  # warms up
    began, worked = time.perf_counter(), time.process_time()
    encoded(encoder, batches)
    encode_s, encode_cpu_s = time.perf_counter() - began, time.process_time() - worked
    covered = have / encoder.rate_hz
    speed = covered / (decode_s + encode_s)
    wall = decode_s / covered, encode_s / covered
    return [EncodeRow(name, covered, *wall, decode_cpu_s / covered, encode_cpu_s / covered, speed, note)]


def encoded(encoder: Any, batches: Iterable[Any]) -> Any:
    """The vectors of a video, given as batches of clips, joined as the product joins them."""
    from stepformer.encoders.reading import MOST_VECTORS, Kept

    kept = Kept(MOST_VECTORS)
    for batch in batches:
        kept.add(encoder.encode_video(batch))
    return getattr(encoder, "finish", lambda clips: clips)(kept.taken())


def tower_rates(pictures: int, repeats: int, device: str) -> dict[str, Any]:
    """Pictures per second of the image tower, the best of the repeats, and what that is in real time: of a long video
    every second has a structure vector, and two seconds share a vector."""
    import numpy as np

    from stepformer.encoders.clip import at_once
    from stepformer.encoders.clip_vit import ClipViT

    network, batch = ClipViT(_untrained_tower(), device=device), at_once(device)
    some = np.random.default_rng(0).integers(0, 256, (pictures, 128, 224, 3), np.uint8)
    rates = {}
    for what in ("structure", "vectors"):
        make, best = getattr(network, what), float("inf")
        for _ in range(repeats + 1):
            began = time.perf_counter()
            for first in range(0, pictures, batch):
                make(some[first : first + batch]).cpu()  # the vectors are wanted on the host
            best = min(best, time.perf_counter() - began)
        rates[what] = pictures / best
    return {
        "device": device,
        "batch": batch,
        **{f"{what}_per_s": rate for what, rate in rates.items()},
        "times_real_time": 1 / (1 / rates["structure"] + 0.5 / rates["vectors"]),
    }


def _untrained_tower() -> dict[str, Any]:
    """Weights of CLIP ViT-B/16's image tower, drawn at random."""
    import torch

    D, draw = 768, torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, generator=draw) * 0.02

    vision = "vision_model."
    state = {
        f"{vision}embeddings.class_embedding": drawn(D),
        f"{vision}embeddings.patch_embedding.weight": drawn(D, 3, 16, 16),
        f"{vision}embeddings.position_embedding.weight": drawn(1 + 14 * 14, D),
        "visual_projection.weight": drawn(512, D),
    }
    layers = [f"{vision}encoder.layers.{i}." for i in range(12)]
    norms = [f"{layer}layer_norm{n}" for layer in layers for n in (1, 2)]
    for name in (f"{vision}pre_layrnorm", f"{vision}post_layernorm", *norms):
        state |= {f"{name}.weight": torch.ones(D), f"{name}.bias": torch.zeros(D)}
    linears = {"self_attn.out_proj": (D, D), "mlp.fc1": (4 * D, D), "mlp.fc2": (D, 4 * D)}
    linears |= {f"self_attn.{part}_proj": (D, D) for part in "qkv"}
    for layer in layers:
        for name, (outward, inward) in linears.items():
            state |= {f"{layer}{name}.weight": drawn(outward, inward), f"{layer}{name}.bias": drawn(outward)}
    return state


def _encoder_names(wanted: list[str] | None) -> list[str]:
    from stepformer.encoders import ENCODERS

    if wanted is None:
        return [name for name in ENCODERS if name not in ("sentence", "captions", "precomputed")]
    return wanted


class _UntrainedS3D:
    """MIL-NCE's video side with random weights: as fast as the trained one."""

    rate_hz = 1.0

    def __init__(self, frames: int, fps: float) -> None:
        from stepformer.encoders.milnce import S3D
        from stepformer.media.picture import FrameSpec

        self.wants = FrameSpec((224, 224), frames, fps)
        self._model = S3D(words=False).eval()

    def encode_video(self, frames: Any) -> Any:
        """Clips to vectors."""
        import torch

        from stepformer.encoders.base import Encoded
        from stepformer.encoders.milnce import to_clips

        with torch.inference_mode():
            return Encoded(self._model.pooled(to_clips(frames)).numpy())


class _UntrainedUniVL(_UntrainedS3D):
    """UniVL's video side with random weights."""

    def __init__(self) -> None:
        from stepformer.encoders.univl import UniVL

        super().__init__(16, 16.0)
        self._univl = UniVL(text_layers=1).eval()

    def finish(self, whole: Any) -> Any:
        """The video transformer over all clips."""
        import torch

        from stepformer.encoders.base import Encoded

        with torch.inference_mode():
            return Encoded(self._univl.encode_seconds(torch.from_numpy(whole.vectors)[None, :48])[0].numpy())


_UNTRAINED: dict[str, Callable[[], Any]] = {"milnce": lambda: _UntrainedS3D(32, 10.0), "univl": _UntrainedUniVL}


def _text(decode: list[DecodeRow], encode: list[EncodeRow], seconds: float) -> str:
    lines = []
    for video in dict.fromkeys(row.video for row in decode):
        rows = [row for row in decode if row.video == video]
        lines.append(f"decoding {video} to pictures of 224 x 224")
        lines.append(
            f"  {'wanted':<12} {'of s':>6}  {'decoded':<24} {'pictures':>9} {'seeks':>6} {'wall s':>8} {'cpu s':>7} "
            f"{'x real time':>12} {'ratio':>6}"
        )
        for row in rows:
            lines.append(
                f"  {row.wanted:<12} {row.seconds:>6.1f}  {row.way:<24} {row.pictures_decoded:>9} {row.seeks:>6} "
                f"{row.wall_s:>8.2f} {row.cpu_s:>7.2f} {row.x_real_time:>12.1f} {row.ratio:>5.2f}x"
            )
        lines.append("")
    if encode:
        lines.append(f"encoding {seconds:g} s of {decode[0].video}; seconds spent on a second of video")
        lines.append(
            f"  {'encoder':<12} {'decode':>8} {'encode':>8} {'decode cpu':>11} {'encode cpu':>11} {'decode share':>13} "
            f"{'x real time':>12}"
        )
        for line in encode:
            if not line.seconds:
                lines.append(f"  {line.encoder:<12} {line.note}")
                continue
            share = line.decode_cpu_s / (line.decode_cpu_s + line.encode_cpu_s)
            lines.append(
                f"  {line.encoder:<12} {line.decode_s:>8.3f} {line.encode_s:>8.3f} {line.decode_cpu_s:>11.3f} "
                f"{line.encode_cpu_s:>11.3f} {share:>13.0%} {line.x_real_time:>12.2f}  {line.note}".rstrip()
            )
        lines.append("")
    return "\n".join(lines)
