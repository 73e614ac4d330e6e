"""Where in a library of processed videos a step happens: an index of step and frame vectors, and questions to it.

>>> from stepformer.app.search import open_index, update_index
>>> update_index("store/", stepformer.load_model("default"))
>>> for hit in open_index("store/").search("flip the pancake"):
...     print(hit.video, hit.start_s, hit.end_s, hit.label)

`index` is what lies on disk (usearch graphs beside the library), `query` asks it, `library` brings videos in.
"""

from __future__ import annotations

from stepformer.app.search.index import FOLDER, IndexedVideo, IndexInfo, IndexWriter
from stepformer.app.search.library import update_index
from stepformer.app.search.query import Hit, SearchIndex, open_index

__all__ = [
    "FOLDER", "Hit", "IndexInfo", "IndexWriter", "IndexedVideo", "SearchIndex", "open_index", "update_index",
]  # fmt: skip
