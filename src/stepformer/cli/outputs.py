"""Which files a command writes for each video, and writing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.files import write_json
from stepformer.errors import UsageError
from stepformer.show import export
from stepformer.version import __version__

_PLACE = "{name}"


@dataclass(frozen=True, slots=True)
class Output:
    """One file (or folder, or "-" for stdout) and its format."""

    path: str
    format: str


def planned(
    videos: Sequence[Path], write: Sequence[str], formats: Sequence[str], out: str | None, plot: bool
) -> list[list[Output]]:
    """The outputs of each video.

    write: paths, in which ``{name}`` is the video's name without its ending; formats: names, written as
    ``NAME.steps.SUFFIX`` into the folder ``out`` or beside the video; plot: likewise ``NAME.steps.png``.
    """
    wanted = [*formats, *(["plot"] if plot and "plot" not in formats else [])]
    for path in write:
        if path != "-":
            export.format_of(path)  # a suffix that says nothing is told before any work is done
    several = len(videos) > 1
    for path in write:
        if several and _PLACE not in path:
            raise UsageError(
                f"--write {path} would hold {len(videos)} videos; put {_PLACE} into it for the video's name"
            )
    plans: list[list[Output]] = []
    owner: dict[str, Path] = {}
    for video in videos:
        stem = video.stem if video.suffix else video.name
        plan = [_named(path.replace(_PLACE, stem)) for path in write]
        folder = Path(out) if out is not None else video.parent
        plan += [Output(str(folder / f"{stem}.steps{_suffix(name, video)}"), name) for name in wanted]
        for output in plan:
            other = owner.setdefault(output.path, video)
            if other != video and output.path != "-":
                raise UsageError(f"{other} and {video} would both be written to {output.path}; give them apart")
        plans.append(plan)
    return plans


def _named(path: str) -> Output:
    return Output(path, "json" if path == "-" else export.format_of(path).name)


def _suffix(name: str, video: Path) -> str:
    chosen = export.format_of("", name)
    if chosen.name == "media":
        return video.suffix if video.suffix.lower() in chosen.suffixes else ".mkv"
    return chosen.suffixes[0] if chosen.suffixes else "/"


def all_there(plan: Sequence[Output]) -> bool:
    """Whether every output of a video exists already."""
    return bool(plan) and all(output.path != "-" and Path(output.path).exists() for output in plan)


def write_all(timeline: Any, plan: Sequence[Output], video: Path, similarity: Any) -> list[dict[str, Any]]:
    """Writes a timeline to all its outputs (stdout is the caller's) and says what was written."""
    done: list[dict[str, Any]] = []
    for output in plan:
        if output.path == "-":
            continue
        options: dict[str, Any] = {"video": str(video) if video.is_file() else None}
        if output.format in ("plot", "html"):
            options["similarity"] = similarity
        written = export.write(timeline, output.path, format=output.format, **options)
        done.append({"path": output.path, "format": output.format, "notes": list(written.notes)})
    return done


def save_options(command: str, plans: Sequence[Sequence[Output]], settings: dict[str, Any]) -> None:
    """The resolved options as ``stepformer.options.json`` in every folder that got a file."""
    folders = {Path(output.path).parent for plan in plans for output in plan if output.path != "-"}
    for folder in sorted(folders):
        write_json(folder / "stepformer.options.json", {"stepformer": __version__, "command": command, **settings})
