"""Where in a library of processed videos a step happens: an index of step and frame vectors, and questions to it.

Examples:
    >>> sf.search.update_index("videos/").added
    2
    >>> best = sf.search.open_index("videos/").search("whisk the batter")[0]
    >>> best.start_s, best.end_s
    (10.0, 20.0)
"""

from __future__ import annotations

from stepformer.app.search.index import HERE, Hit, IndexInfo, SearchIndex, open_index
from stepformer.app.search.library import Update, update_index

__all__ = ["HERE", "Hit", "IndexInfo", "SearchIndex", "Update", "open_index", "update_index"]
