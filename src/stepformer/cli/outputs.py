"""Which files a command writes for each video, whether it may, and writing them."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.files import replacing, write_json
from stepformer.base.guard import read_json
from stepformer.cli.inputs import Input
from stepformer.cli.log import log
from stepformer.cli.options import settings_of
from stepformer.errors import InputError, UsageError, WriteError
from stepformer.show import export
from stepformer.version import __version__

OPTIONS_FILE = "stepformer.options.json"
_PLACE = "{name}"
_HOW = (
    "jobs", "cluster", "threads", "device", "keep_going", "skip_existing", "overwrite", "dry_run", "no_cache", "format",
    "write", "out", "plot", "time_limit", "videos",
)  # fmt: skip
"""Options that say how, what else or where to write, and do not change what is in a file."""


@dataclass(frozen=True, slots=True)
class Output:
    """One file (or folder) and its format."""

    path: str
    format: str


def planned(sources: Sequence[Input], args: argparse.Namespace) -> list[list[Output]]:
    """The outputs of each video: ``--write`` as named, and ``NAME.steps.SUFFIX`` for ``--format`` and ``--plot``."""
    wanted = args.format or (["json"] if args.out is not None and not args.write else [])
    wanted = list(dict.fromkeys([*wanted, *(["plot"] if args.plot else [])]))
    for path in args.write:
        export.format_of(path)  # a suffix that says nothing is an error before any work is done
        if len(sources) > 1 and _PLACE not in path:
            raise UsageError(
                f"--write {path} would hold {len(sources)} videos; put {_PLACE} into it for the video's name"
            )
    if wanted and args.out is None and any(source.kind == "store" for source in sources):
        raise UsageError("results cannot be written into a feature store; give another folder with --out")
    plans: list[list[Output]] = []
    owner: dict[str, Input] = {}
    for source in sources:
        named = [path.replace(_PLACE, source.name) for path in args.write]
        plan = [Output(path, export.format_of(path).name) for path in named]
        folder = Path(args.out) if args.out is not None else source.path.parent
        plan += [
            Output(str(folder / f"{source.name}.steps{suffix_of(export.FORMATS[name], source.path)}"), name)
            for name in wanted
        ]
        for output in plan:
            other = owner.setdefault(output.path, source)
            if other != source:
                raise UsageError(
                    f"{other} and {source} would both be written to {output.path}; process them in separate runs"
                )
        plans.append(plan)
    return plans


def suffix_of(chosen: export.Format, video: Path) -> str:
    """What the name of a file in this format ends in; a copy of the video keeps the video's own suffix."""
    if chosen.name == "media":
        return video.suffix if video.suffix.lower() in chosen.suffixes else ".mkv"
    return chosen.suffixes[0] if chosen.suffixes else "/"


def may_write(paths: Iterable[str], overwrite: bool, run: str = "") -> None:
    """Raises where a file is there already that another run, or a person, wrote."""
    found = [path for path in map(Path, paths) if str(path) != "-" and path.exists()]
    there = [path for path in found if not run or _written(path.parent).get(path.name) != run]
    if there and not overwrite:
        more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise UsageError(f"{there[0]}{more} already exists, from another run; use --overwrite to replace it")


def _written(folder: Path) -> dict[str, Any]:
    """File -> the run that wrote it, as the options kept in a folder say."""
    with suppress(InputError):
        saved = read_json(folder / OPTIONS_FILE)
        files = saved.get("files") if isinstance(saved, dict) else None
        return files if isinstance(files, dict) else {}
    return {}


def run_id(args: argparse.Namespace) -> str:
    """What tells runs apart that would write different things into the same file."""
    options = {key: value for key, value in settings_of(args)["options"].items() if key not in _HOW}
    text = json.dumps([__version__, args.command, options], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_one(finding: Any, output: Output, source: Input, vectors: bool) -> dict[str, Any]:
    """Writes a timeline to one output and says what was written. ``vectors``: one row per step beside a JSON file."""
    video = str(source.path) if source.kind == "video" and source.path.is_file() else None
    written = export.write(finding.timeline, output.path, output.format, video=video, similarity=finding.similarity)
    if vectors and output.format == "json":
        import numpy as np

        with replacing(output.path.removesuffix(".json") + ".vectors.npy") as temporary:
            np.save(temporary, finding.step_vectors)
    return {"path": output.path, "format": output.format, "notes": list(written.notes)}


def warn_of_cache() -> None:
    """One warning where nothing can be kept; the work itself goes on."""
    from stepformer.base.cache import cache_folder, why_nothing_is_kept

    if why := why_nothing_is_kept():
        log.warning(f"{cache_folder()} cannot be written ({why}): what is read from videos is not cached")


def save_options(args: argparse.Namespace, written: Iterable[str]) -> None:
    """The resolved options as ``stepformer.options.json`` in every folder that got a file, with who wrote which."""
    folders: dict[Path, dict[str, str]] = defaultdict(dict)
    for path in map(Path, written):
        folders[path.parent][path.name] = run_id(args)
    for folder, new in sorted(folders.items()):
        files = _written(folder) | new
        record = {"stepformer": __version__, "command": args.command, **settings_of(args), "files": files}
        try:
            write_json(folder / OPTIONS_FILE, record)
        except WriteError as error:  # the results are there, and worth more than how they came about
            log.warning(str(error))
