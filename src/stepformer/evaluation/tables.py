"""Tables of results as text, Markdown, LaTeX and JSON; percentages with one decimal, spread behind ±."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepformer.evaluation.protocols import Result

COLUMNS = {"f1": "F1", "precision": "Prec.", "recall": "Rec.", "mof": "MoF", "iou": "IoU"}
_MARKDOWN = str.maketrans({"|": r"\|"})
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"±": r"$\pm$", "–": "--", "−": "$-$"})


@dataclass(frozen=True, slots=True)
class Cell:
    """A share in [0, 1], shown as a percentage; ``bold`` marks the best of a column.

    spread: standard deviation over seeds. interval: the value is a difference, and this is its bootstrap interval.
    """

    value: float
    spread: float | None = None
    bold: bool = False
    interval: tuple[float, float] | None = None

    def text(self) -> str:
        """``28.3``, ``28.3 ± 0.4`` or ``+9.6 [+8.1, +11.0]``; ``–`` where there is no value."""
        if math.isnan(self.value):
            return "–"
        if self.interval is not None:
            low, high = self.interval
            return f"{100 * self.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
        plain = f"{100 * self.value:.1f}"
        return plain if self.spread is None else f"{plain} ± {100 * self.spread:.1f}"


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; a cell is a text, a :class:`Cell`, or None for an empty one."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str | None, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of this table must have {len(self.columns)} cells")

    def _texts(self, bold: str, special: Mapping[int, str]) -> list[list[str]]:
        """The cells as texts, the best of a column as ``bold`` has it, and characters that are ``special`` escaped."""

        def text(cell: Cell | str | None) -> str:
            plain = (cell.text() if isinstance(cell, Cell) else cell or "").translate(special)
            return bold.format(plain) if isinstance(cell, Cell) and cell.bold else plain

        return [[text(cell) for cell in row] for row in self.rows]

    def _numeric(self) -> list[bool]:
        """Whether a column has numbers."""
        return [any(isinstance(row[i], Cell) for row in self.rows) for i in range(len(self.columns))]

    def to_text(self) -> str:
        """Aligned columns for a terminal."""
        rows = [list(self.columns), *self._texts("{}", {})]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]

        def line(row: Sequence[str]) -> str:
            cells = (t.rjust(w) if n else t.ljust(w) for t, w, n in zip(row, widths, self._numeric(), strict=True))
            return "  ".join(cells).rstrip()

        rule = "  ".join("-" * w for w in widths)
        return "\n".join([self.title, "", line(rows[0]), rule, *map(line, rows[1:]), *self._notes()])

    def to_markdown(self) -> str:
        """A GitHub table; the best of a column in bold."""
        body = ["| " + " | ".join(row) + " |" for row in self._texts("**{}**", _MARKDOWN)]
        head = "| " + " | ".join(self.columns) + " |"
        return "\n".join([f"**{self.title}**", "", head, "|" + "---|" * len(self.columns), *body, *self._notes()])

    def to_latex(self) -> str:
        """A booktabs tabular in a table environment."""
        body = [" & ".join(row) + r" \\" for row in self._texts(r"\textbf{{{}}}", _LATEX)]
        align = "".join("r" if numeric else "l" for numeric in self._numeric())
        columns, notes = ([text.translate(_LATEX) for text in texts] for texts in (self.columns, self.notes))
        return "\n".join(
            [
                r"\begin{table}[t]", r"\centering", f"\\begin{{tabular}}{{{align}}}", r"\toprule",
                " & ".join(columns) + r" \\", r"\midrule", *body, r"\bottomrule",
                r"\end{tabular}", f"\\caption{{{self.title.translate(_LATEX)}. {' '.join(notes)}}}", r"\end{table}",
            ]
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; shares stay in [0, 1]."""
        rows = []
        for row in self.rows:
            out: dict[str, Any] = {}
            for name, cell in zip(self.columns, row, strict=True):
                if isinstance(cell, Cell):
                    out[name] = {"value": None if math.isnan(cell.value) else cell.value}  # JSON has no NaN
                    if cell.spread is not None:
                        out[name]["spread"] = None if math.isnan(cell.spread) else cell.spread
                    if cell.interval is not None:
                        out[name]["interval"] = list(cell.interval)
                else:
                    out[name] = cell
            rows.append(out)
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "notes": list(self.notes)}

    def _notes(self) -> list[str]:
        return ["", *self.notes] if self.notes else []


def protocols_table(title: str, results: Sequence[Result], notes: Sequence[str] = ()) -> Table:
    """Protocols side by side: one row per protocol, common metrics in columns, others behind them."""
    rows: list[tuple[Cell | str | None, ...]] = []
    historical = False
    for result in results:
        values = result.values
        cells = [Cell(values[metric], result.spread.get(metric)) if metric in values else None for metric in COLUMNS]
        others = {name: value for name, value in values.items() if name not in COLUMNS and not math.isnan(value)}
        historical |= "mof_historical" in others
        shown = " ".join(f"{'MoF*' if name == 'mof_historical' else name} {100 * v:.1f}" for name, v in others.items())
        rows.append((result.protocol, *cells, shown, result.how))
    star = ("MoF* is the historical value: compare it with old tables only.",) if historical else ()
    columns = ("protocol", *COLUMNS.values(), "other", "how the ids were read")
    return Table(title, columns, tuple(rows), (*star, *notes))
