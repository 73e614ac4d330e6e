"""Sentences of all the kinds that how-to speech has, and what a person would take from them."""

from __future__ import annotations

import pytest

from stepformer.errors import UsageError
from stepformer.narration import Cue, Phrase, PhraseOptions, extract_phrases
from stepformer.narration.phrases import wanted, without_repeats

ALL_FOUR = ["peel the potatoes", "peel the carrots", "slice the potatoes", "slice the carrots"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        # particles
        ("turn off the heat", ["turn off the heat"]),
        ("turn the heat off", ["turn off the heat"]),
        ("turn it off", ["turn it off"]),
        ("put the lid on", ["put on the lid"]),
        ("put on the cap", ["put on the cap"]),
        ("plug it in and turn it on", ["plug it in", "turn it on"]),
        # conjoined verbs and objects
        ("peel and slice the potatoes and the carrots", ALL_FOUR),
        ("Peel and slice the potatoes and the carrots.", ALL_FOUR),
        ("whisk together the eggs and the milk", ["whisk together the eggs and the milk"]),
        # persons and imperatives
        ("I added two cups of sugar", ["add two cups of sugar"]),
        ("we are adding the butter now", ["add the butter"]),
        ("let's add the flour", ["add the flour"]),
        ("he pours the milk into the glass", ["pour the milk into the glass"]),
        ("butter the pan and pour in the batter", ["butter the pan", "pour in the batter"]),
        ("heat oil in a pan", ["heat oil in a pan"]),
        # light verbs
        ("you want to go ahead and add the flour", ["add the flour"]),
        ("I'm gonna go ahead and add the flour", ["add the flour"]),
        ("make sure to wash your hands", ["wash your hands"]),
        ("give the sauce a good stir", ["stir the sauce"]),
        ("we need to start adding the flour", ["add the flour"]),
        ("don't forget to preheat the oven", ["preheat the oven"]),
        # negation
        ("don't stir it", ["do not stir it"]),
        ("never touch the blade", ["do not touch the blade"]),
        ("you shouldn't open the oven door", ["do not open the oven door"]),
        ("be careful not to burn the garlic", ["do not burn the garlic"]),
        ("you don't need to add salt", []),
        # passive
        ("the eggs are added to the bowl", ["add the eggs to the bowl"]),
        ("the dough should be kneaded for ten minutes", ["knead the dough for ten minutes"]),
        ("the eggs were beaten by the chef", ["beat the eggs"]),
        # objects that are left out, once it is known what is meant
        ("chop the onions and cook for ten minutes", ["chop the onions", "cook the onions for ten minutes"]),
        ("add the flour now stir well", ["add the flour", "stir the flour"]),
        ("stir well", []),
        ("we've got the carrots washed and cut", ["wash the carrots"]),
        # prepositional phrases
        ("pour the batter into the pan", ["pour the batter into the pan"]),
        ("season the chicken with salt and pepper", ["season the chicken with salt and pepper"]),
        ("take the pan off the heat", ["take the pan off the heat"]),
        ("let the dough rise for an hour", ["let the dough rise for an hour"]),
        ("", []),
    ],
)  # fmt: skip
def test_phrases(say, said: str, wanted: list[str]) -> None:
    assert say(said) == wanted


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("crack the eggs into the bowl and whisk them", "whisk the eggs"),
        ("take out the trash and put it in the bin", "put the trash in the bin"),
        ("grab a clean cloth dip it in the polish", "dip the cloth in the polish"),
        ("place the pan on the stove and heat the oil in it", "heat the oil in the pan"),
        ("once the onions are soft add them to the pot", "add the onions to the pot"),
        ("peel the carrots these are then sliced with a knife", "slice the carrots with a knife"),
    ],
)
def test_references(say, said: str, wanted: str) -> None:
    assert wanted in say(said)
    assert wanted not in say(said, coreference="none")


@pytest.mark.parametrize(
    "said",
    [
        "subscribe to my channel",
        "click the link in the description",
        "hit the like button",
        "I love this recipe",
        "we have two cups of flour here",
        "it takes ten minutes",
        "this gives the cake a nice flavor",
        "take a look at this",
        "leave a comment down below",
        "I make this recipe",
        "it takes an hour and I use that",
    ],
)
def test_chatter_is_marked(say, said: str) -> None:
    assert say(said) == []
    assert say(said, chatter=True)


def test_amounts_are_amounts_of_things(say) -> None:
    assert say("add a little bit of soy sauce") == ["add a little bit of soy sauce"]
    assert say("use the rest of the butter") == ["use the rest of the butter"]


def test_detail_keeps_what_the_pattern_leaves_out(say) -> None:
    said = "cut the peas diagonally and cook them in the pan for ten minutes"
    assert say(said) == ["cut the peas", "cook the peas in the pan"]
    assert say(said, detail=True) == ["cut the peas diagonally", "cook the peas in the pan ten minutes"]
    assert say("turn off the heat", detail=True) == ["turn off the heat"]


def test_nouns_on_no_list_are_placed_by_their_vectors(parser) -> None:
    from stepformer.narration.groundability import noun_score, noun_scores

    if not parser.nlp.vocab.vectors.size:
        pytest.skip("the parser's pipeline has no word vectors")
    assert noun_score("schnitzel") == noun_score("meeting")  # the lists know neither
    assert parser.tangible("schnitzel") > 0.75 > 0.5 > parser.tangible("meeting")
    assert parser.tangible("onion") == 1.0 and parser.tangible("idea") == 0.1

    import spacy

    bare = noun_scores(spacy.blank("en"))
    assert bare("schnitzel") == noun_score("schnitzel") and bare("") == noun_score("")


def test_the_bell_of_a_clarinet_is_no_chatter(say) -> None:
    assert say("put the bell on the lower joint") == ["put the bell on the lower joint"]
    assert say("cut off the tips of the beans") == ["cut off the tips of the beans"]


def test_fillers_and_stammers_do_not_matter(say) -> None:
    assert say("so um you you wanna uh add the the flour you know to the bowl") == ["add the flour to the bowl"]


def test_speech_without_punctuation_is_cut_into_sentences(say) -> None:
    said = (
        "okay so first we're gonna preheat the oven then line a tray with paper now crack the eggs don't whisk them yet"
    )
    assert say(said) == ["preheat the oven", "line a tray with paper", "crack the eggs", "do not whisk the eggs"]


def test_punctuation_that_is_there_is_left_alone() -> None:
    from stepformer.narration.cues import Word
    from stepformer.narration.sentences import marked_ends

    words = [Word(i, i + 1, text) for i, text in enumerate(["Add", "1.5", "tbsp.", "of", "salt.", "Now", "stir"])]
    ends, settled = marked_ends(words)
    assert [word.text for word, end in zip(words, ends, strict=True) if end] == ["salt."]
    assert settled == [True] * 5 + [False] * 2


def test_options(say) -> None:
    assert say("reach behind the washer", released=True) == []
    assert say("reach behind the washer") == ["reach behind the washer"]
    texts = ("a " * 16, "b" * 101, "add the flour")
    kept = wanted([Phrase(text, 0.0, 1.0) for text in texts], PhraseOptions(released=True))
    assert [phrase.text for phrase in kept] == ["add the flour"]
    assert say("make a decision", min_groundability=0.5) == []
    assert say("chop the onions", min_groundability=0.5) == ["chop the onions"]


def test_options_are_checked() -> None:
    with pytest.raises(UsageError):
        PhraseOptions(min_groundability=2.0)


def test_stages_that_do_not_exist(say) -> None:
    with pytest.raises(UsageError, match="no punctuation stage"):
        say("stir it", punctuation="magic")
    with pytest.raises(UsageError, match="no co-reference stage"):
        say("stir it", coreference="magic")


def test_the_released_filter_drops_what_repeats_either_of_the_two_before() -> None:
    texts = ["add salt", "stir", "add salt to the pan", "fry", "whisk the eggs", "whisk"]
    phrases = [Phrase(text, i, i + 1) for i, text in enumerate(texts)]
    # forwards "add salt to the pan" starts with "add salt"; backwards "whisk the eggs" starts with "whisk"
    assert [phrase.text for phrase in without_repeats(phrases)] == ["add salt", "stir", "fry", "whisk"]


def test_times_are_those_of_the_words(parser) -> None:
    cues = [Cue(0.0, 4.0, "okay so today"), Cue(4.0, 6.0, "crack the eggs"), Cue(10.0, 12.0, "and whisk them")]
    crack, whisk = extract_phrases(cues)
    assert crack.text == "crack the eggs" and (crack.start_s, crack.end_s) == pytest.approx((4.0, 6.0), abs=0.3)
    assert whisk.text == "whisk the eggs" and 10.0 < whisk.start_s < whisk.end_s <= 12.0
    assert whisk.verb == "whisk" and whisk.object == "the eggs" and "whisk" in whisk.sentence
    assert Phrase(**whisk.to_dict()) == whisk


def test_groundability_orders_what_a_camera_sees() -> None:
    from stepformer.narration.groundability import groundability

    seen = groundability("chop", "onions")
    assert 1.0 >= seen > groundability("make", "decision") >= 0.0
    assert seen > groundability("chop", "onions", negated=True)
    assert seen > groundability("chop", "onions", chatter=True)


@pytest.mark.parametrize(
    ("word", "tag", "base"),
    [("slicing", "VBG", "slice"), ("chopped", "VBD", "chop"), ("ground", "VBN", "grind"), ("put", "VBD", "put"),
     ("fries", "VBZ", "fry"), ("mixes", "VBZ", "mix"), ("gon", "VBG", "go"), ("butter", "NN", "butter")],
)  # fmt: skip
def test_base_forms(parser, word: str, tag: str, base: str) -> None:
    assert parser.lemma_of(word, tag) == base


def test_capitals_and_curly_quotes(say) -> None:
    assert say("CRACK THE EGGS INTO THE BOWL AND WHISK THEM.") == ["crack the eggs into the bowl", "whisk the eggs"]
    assert say("Don’t stir it") == ["do not stir it"]


def test_cues_may_come_from_anywhere_and_out_of_order(parser) -> None:
    cues = (Cue(at, at + 2.0, text) for at, text in ((10.0, "whisk them"), (4.0, "crack the eggs")))
    assert [phrase.text for phrase in extract_phrases(cues)] == ["crack the eggs", "whisk the eggs"]
    assert extract_phrases([]) == []
