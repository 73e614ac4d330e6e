"""Defaults that several rooms name, kept where importing them costs nothing."""

LANGUAGE = "en"  # of subtitles where there are several, and of the speech
SPEECH_MODEL = "base"
VIDEO_STEPS = 300  # of training on a user's own videos
GRAMMAR_PROCEDURES = 2000  # of a simulated world
TOP = 10  # places that a search answers with
