"""``stepformer view``: the page of a timeline in a browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepformer.base.files import no_such
from stepformer.cli.inputs import video_of, with_video
from stepformer.cli.log import answer, log
from stepformer.cli.options import LISTENING, add, listening_of, port
from stepformer.narration.listening import Listening
from stepformer.timeline import Timeline

HELP = """Opens the page of a timeline in a browser: the video, its steps as a bar and as a list that seeks. The page
and the video are served on 127.0.0.1 only, until Ctrl-C. A video is shown with the timeline beside it
(pancakes.steps.json or pancakes.json); without one, its steps are discovered first. To keep the page as a file instead:
stepformer export TIMELINE page.html."""

EXAMPLES = [
    "stepformer view pancakes.json",
    "stepformer view pancakes.mp4                     # its pancakes.steps.json, or discover first",
    "stepformer view pancakes.json --port 8000 --no-browser",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("timeline", metavar="TIMELINE", help="a timeline file, or a video")
    add(parser, "video", "model", "title", "sure_only", "subtitles", *LISTENING)
    parser.add_argument("--port", type=port, metavar="N", help="port to listen on (default: any free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")


def run(args: argparse.Namespace) -> None:
    """Serves until interrupted, which is how it is meant to end."""
    from stepformer.show.viewer import address, make_page, serve
    from stepformer.show.writing import without_guesses

    timeline, video = open_timeline(args.timeline, args.video, args.model, listening_of(args), args.apart)
    shown = without_guesses(timeline) if args.sure_only else timeline
    page = with_video(make_page, shown, video, args.title, video=video, apart=args.apart)
    for note in page.notes:
        log.info(f"{args.timeline}: {note}")
    server = serve(page, args.port or 0)
    url = address(server)
    answer(args, {"url": url, "video": str(page.video) if page.video else None}, url)
    log.info("serving on this machine only; stop with Ctrl-C")
    if not args.no_browser:
        import webbrowser

        if not webbrowser.open(url):
            log.info("no browser could be opened here; open the address above")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        log.info("stopped")
    finally:
        server.server_close()


def open_timeline(
    name: str, video: str | None = None, model: str = "default", heard: Listening | None = None, apart: bool = False
) -> tuple[Timeline, str | None]:
    """The timeline that ``name`` is or belongs to, and the video file where it is another than the timeline says.

    apart: a video that has no timeline is looked at in a process of its own.
    """
    from stepformer.media import SUFFIXES
    from stepformer.show import export

    path = Path(name)
    if not path.is_file():
        raise no_such(name)
    if path.suffix.lower() not in SUFFIXES:
        return video_of(export.read(path), name, video)
    beside = next((p for s in (".steps.json", ".json") if (p := path.with_suffix(s)).is_file()), None)
    if beside is not None:
        return export.read(beside), str(path)
    log.info(f"{name} has no timeline beside it ({path.stem}.steps.json); discovering its steps first")
    return with_video(_discover, model, name, heard, video=name, apart=apart), name


def _discover(model: str, video: str, heard: Listening | None) -> Timeline:
    import stepformer

    return stepformer.load_model(model).discover(video, listening=heard)
