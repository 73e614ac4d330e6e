"""The pipeline's options on the command line, the same for every command that extracts phrases."""

from __future__ import annotations

import argparse

from stepformer.narration.phrases import PhraseOptions


def add_options(parser: argparse.ArgumentParser, *, detail: bool = True) -> None:
    """Adds one flag a field of :class:`PhraseOptions`.

    ``detail`` is on where phrases are prepared for training, because phrases with it match the steps better
    (``stepformer bench phrases``), and off where they are shown to a person.
    """
    group = parser.add_argument_group("phrases")
    group.add_argument("--punctuation", default="rules", help="rules, none, or an installed model (default: rules)")
    group.add_argument("--coreference", default="rules", help="rules, none, or an installed model (default: rules)")
    group.add_argument(
        "--parser", help="folder or package of a spaCy pipeline (default: an installed one, else the pinned one)"
    )
    group.add_argument("--drop-negated", action="store_true", help='leave out "do not stir it"')
    group.add_argument(
        "--need-object", action="store_true", help="ask for a direct object, as the paper's pattern does"
    )
    group.add_argument(
        "--detail",
        action=argparse.BooleanOptionalAction,
        default=detail,
        help="behind the paper's pattern, the other words of the clause (default: "
        + ("yes; --no-detail is the pattern alone)" if detail else "no)"),
    )
    group.add_argument("--no-chatter", action="store_true", help="leave chatter out instead of marking it")
    group.add_argument(
        "--min-groundability", type=float, default=0.0, help="leave out phrases below this score, 0 to 1"
    )
    group.add_argument("--max-letters", type=int, help="leave out longer phrases (released loader: 100)")
    group.add_argument("--max-words", type=int, help="leave out longer phrases (released loader: 15)")
    group.add_argument(
        "--drop-repeats", action="store_true", help="leave out one that repeats either of the two before it"
    )


def options_from(args: argparse.Namespace) -> PhraseOptions:
    """The options that the flags ask for."""
    return PhraseOptions(
        punctuation=args.punctuation,
        coreference=args.coreference,
        parser=args.parser,
        negation="drop" if args.drop_negated else "keep",
        objects=args.need_object,
        detail=args.detail,
        chatter=not args.no_chatter,
        min_groundability=args.min_groundability,
        max_letters=args.max_letters,
        max_words=args.max_words,
        drop_repeats=args.drop_repeats,
    )
