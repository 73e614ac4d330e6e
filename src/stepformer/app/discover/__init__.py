"""Discover the steps of a video, or locate given ones in it.

>>> import stepformer as sf
>>> model = sf.load_model("default")
>>> timeline = model.discover("pancakes.mp4")
>>> timeline = model.locate("pancakes.mp4", ["crack the eggs", "whisk", "pour into the pan"])
>>> import numpy as np
>>> vectors = np.repeat(np.eye(3, 512), 20, axis=0)       # features you have: here 60 s of three different things
>>> [(step.start_s, step.end_s) for step in model.discover_features(vectors, rate_hz=1.0)]
[(0.0, 20.0), (20.0, 40.0), (40.0, 60.0)]
"""
