"""Defaults that several rooms name, kept where importing them costs nothing."""

LANGUAGE = "en"  # of subtitles where there are several, and of the speech
SPEECH_MODEL = "base"
