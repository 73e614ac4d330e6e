"""Where in a library of processed videos a step happens: an index of step and frame vectors, and questions to it.

>>> import stepformer as sf
>>> sf.search.update_index("videos/").added                                    # doctest: +SKIP
12
>>> for hit in sf.search.open_index("videos/").search("flip the pancake"):     # doctest: +SKIP
...     print(hit.video, hit.start_s, hit.end_s, hit.label)

`index` is what lies on disk (usearch graphs beside the library), `query` asks it, `library` brings videos in.
"""

from __future__ import annotations

from stepformer.app.search.index import FOLDER, IndexedVideo, IndexInfo, IndexWriter
from stepformer.app.search.library import update_index
from stepformer.app.search.query import HERE, Hit, SearchIndex, open_index

__all__ = [
    "FOLDER", "HERE", "Hit", "IndexInfo", "IndexWriter", "IndexedVideo", "SearchIndex", "open_index", "update_index",
]  # fmt: skip
