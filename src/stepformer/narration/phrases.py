"""Phrases, and the options of the pipeline that makes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stepformer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Phrase:
    """One thing that the speaker says is done: ``verb + (particle) + object + (preposition + its object)``.

    Attributes:
        text: The phrase; with the option ``detail`` the other words of its clause stand behind it.
        start_s: When its first word was said.
        end_s: When its last word was said.
        chatter: It is talk around the steps ("subscribe to my channel").
        groundability: How likely a camera would see it, in [0, 1].
        verb: Its lemma.
        particle: As in "cut up".
        object: With references resolved.
        preposition: "into the bowl".
        negated: It must not be done.
        sentence: What was said around it.
        said_object: Where a reference was resolved, the object as it was said: "it", or "" for nothing.
    """

    text: str
    start_s: float
    end_s: float
    chatter: bool = False
    groundability: float = 0.5
    verb: str = ""
    particle: str = ""
    object: str = ""
    preposition: str = ""
    negated: bool = False
    sentence: str = ""
    said_object: str | None = None

    @property
    def middle_s(self) -> float:
        """The middle of when it was said."""
        return (self.start_s + self.end_s) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and Parquet."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PhraseOptions:
    """What the pipeline does. The defaults work out of the box; every stage can be switched off to measure it.

    Attributes:
        punctuation: "rules", "none", or a plugin's name.
        coreference: "rules", "none", or a plugin's name.
        parser: Folder or package of a spaCy pipeline; None takes an installed one, else the pinned one.
        disfluencies: Take fillers and stammers out before parsing.
        steer: Help the parser with imperatives that look like nouns.
        detail: Behind the pattern, the other words of its clause: "cut the peas diagonally lengthwise".
        chatter: Give chatter too, marked; False leaves it out.
        min_groundability: Leave out phrases whose groundability is lower.
        released: As the released code: a direct object (no "tap on the icon"), at most 100 letters and 15 words, no
            repeats.
    """

    punctuation: str = "rules"
    coreference: str = "rules"
    parser: str | None = None
    disfluencies: bool = True
    steer: bool = True
    detail: bool = False
    chatter: bool = True
    min_groundability: float = 0.0
    released: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_groundability <= 1.0:
            raise UsageError(f"min_groundability is {self.min_groundability}; expected 0 to 1")


def wanted(phrases: list[Phrase], options: PhraseOptions) -> list[Phrase]:
    """Phrases within the length, groundability and chatter limits."""
    return [
        phrase
        for phrase in phrases
        if phrase.groundability >= options.min_groundability
        and (options.chatter or not phrase.chatter)
        and not (options.released and (len(phrase.text) > 100 or len(phrase.text.split()) > 15))
    ]


def without_repeats(phrases: list[Phrase]) -> list[Phrase]:
    """Phrases without those that start with the text of either of the two before them, forwards, then backwards."""
    for _ in range(2):
        kept: list[Phrase] = []
        for i, phrase in enumerate(phrases):
            before = phrases[max(0, i - 2) : i]
            if not any(phrase.text.startswith(other.text) for other in before):
                kept.append(phrase)
        phrases = kept[::-1]
    return phrases
