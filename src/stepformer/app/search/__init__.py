"""Where in a library of processed videos a step happens: an index of step and frame vectors, and questions to it.

>>> import stepformer as sf
>>> sf.search.update_index("videos/").added                                    # doctest: +SKIP
12
>>> for hit in sf.search.open_index("videos/").search("flip the pancake"):     # doctest: +SKIP
...     print(hit.video, hit.start_s, hit.end_s, hit.label)
"""

from __future__ import annotations

from stepformer.app.search.index import FOLDER, HERE, Hit, IndexedVideo, IndexInfo, IndexWriter, SearchIndex, open_index
from stepformer.app.search.library import update_index

__all__ = [
    "FOLDER", "HERE", "Hit", "IndexInfo", "IndexWriter", "IndexedVideo", "SearchIndex", "open_index", "update_index",
]  # fmt: skip
