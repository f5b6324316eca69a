"""The full-text index: FTS5 where SQLite has it, else an inverted index of our own with the same formula."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from opensage_memory.store.sqlite.filters import Value, chunks, marks
from opensage_memory.text.words import FTS5_TOKENIZER, match_any

Entry = tuple[int, str]
"""Number and tokens of an item."""


class TextIndex(Protocol):
    """An index over `items.tokens`."""

    name: str

    def build(self, link: sqlite3.Connection) -> None:
        """Make it new from the items, whatever was there."""

    def add(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Index items."""

    def drop(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Take items out; the tokens are those they were indexed with."""

    def best(
        self, link: sqlite3.Connection, terms: Sequence[str], condition: str, values: Sequence[Value], k: int
    ) -> list[tuple[str, float]]:
        """Ids of the best k rows `i` of items for which the condition holds."""

    def frequency(self, link: sqlite3.Connection, term: str) -> int:
        """In how many items a token is."""

    def size(self, link: sqlite3.Connection) -> int:
        """How many items are in the index."""

    def faults(self, link: sqlite3.Connection) -> list[str]:
        """Whether it says what the items say."""

    def compact(self, link: sqlite3.Connection) -> None:
        """Leave nothing of what was taken out."""


class Fts5Index:
    """SQLite's own, over tokens that are words of letters and digits already."""

    name = "fts5"

    def build(self, link: sqlite3.Connection) -> None:
        """Make it new from the items, whatever was there."""
        link.execute("DROP TABLE IF EXISTS vocabulary")
        link.execute("DROP TABLE IF EXISTS terms")
        link.execute(
            "CREATE VIRTUAL TABLE terms USING fts5(tokens, content='items', content_rowid='seq', "
            f'tokenize="{FTS5_TOKENIZER}")'
        )
        link.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab('terms', 'row')")
        link.execute("INSERT INTO terms(terms) VALUES('rebuild')")

    def add(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Index items."""
        link.executemany("INSERT INTO terms(rowid, tokens) VALUES(?, ?)", entries)

    def drop(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Take items out; the tokens are those they were indexed with."""
        link.executemany("INSERT INTO terms(terms, rowid, tokens) VALUES('delete', ?, ?)", entries)

    def best(
        self, link: sqlite3.Connection, terms: Sequence[str], condition: str, values: Sequence[Value], k: int
    ) -> list[tuple[str, float]]:
        """Ids of the best k rows `i` of items for which the condition holds."""
        rows = link.execute(
            "SELECT i.id, -bm25(terms) AS score FROM terms CROSS JOIN items i ON i.seq = terms.rowid "
            f"WHERE terms MATCH ? AND {condition} ORDER BY score DESC, i.seq LIMIT ?",
            (match_any(terms), *values, k),
        )
        return [(id, score) for id, score in rows]

    def frequency(self, link: sqlite3.Connection, term: str) -> int:
        """In how many items a token is."""
        row = link.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
        return row[0] if row else 0

    def size(self, link: sqlite3.Connection) -> int:
        """How many items are in the index."""
        return int(link.execute("SELECT count(*) FROM terms_docsize").fetchone()[0])

    def faults(self, link: sqlite3.Connection) -> list[str]:
        """Whether it says what the items say."""
        try:
            link.execute("INSERT INTO terms(terms, rank) VALUES('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            return [f"full-text index: {error}; `check --repair` makes a new one"]
        return []

    def compact(self, link: sqlite3.Connection) -> None:
        """Leave nothing of what was taken out: entries of removed rows stay in its segments until they are merged."""
        link.execute("INSERT INTO terms(terms) VALUES('optimize')")


class PostingIndex:
    """A table of (token, item, count), scored in SQL: for Pythons whose SQLite has no FTS5."""

    name = "postings"

    def build(self, link: sqlite3.Connection) -> None:
        """Make it new from the items, whatever was there."""
        for table in ("postings", "lengths"):
            link.execute(f"DROP TABLE IF EXISTS {table}")
        link.execute(
            "CREATE TABLE postings (term TEXT NOT NULL, item INTEGER NOT NULL, count INTEGER NOT NULL, "
            "PRIMARY KEY (term, item)) WITHOUT ROWID"
        )
        link.execute("CREATE TABLE lengths (item INTEGER PRIMARY KEY, length INTEGER NOT NULL)")
        self.add(link, link.execute("SELECT seq, tokens FROM items").fetchall())

    def add(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Index items."""
        for seq, tokens in entries:
            words = tokens.split()
            counts = Counter(words).items()
            link.executemany("INSERT INTO postings VALUES(?, ?, ?)", [(term, seq, count) for term, count in counts])
            link.execute("INSERT INTO lengths VALUES(?, ?)", (seq, len(words)))

    def drop(self, link: sqlite3.Connection, entries: Iterable[Entry]) -> None:
        """Take items out; the tokens are those they were indexed with."""
        for seq, tokens in entries:
            terms = [(term, seq) for term in set(tokens.split())]
            link.executemany("DELETE FROM postings WHERE term = ? AND item = ?", terms)
            link.execute("DELETE FROM lengths WHERE item = ?", (seq,))

    def best(
        self, link: sqlite3.Connection, terms: Sequence[str], condition: str, values: Sequence[Value], k: int
    ) -> list[tuple[str, float]]:
        """Ids of the best k rows `i` of items for which the condition holds."""
        total, mean = link.execute("SELECT count(*), coalesce(avg(length), 1) FROM lengths").fetchone()
        scores: Counter[tuple[int, str]] = Counter()
        for term in dict.fromkeys(terms):
            rows = link.execute(
                "SELECT i.seq, i.id, p.count, n.length FROM postings p CROSS JOIN items i ON i.seq = p.item "
                f"CROSS JOIN lengths n ON n.item = p.item WHERE p.term = ? AND {condition}",
                (term, *values),
            ).fetchall()
            rarity = _rarity(total, self.frequency(link, term))
            for seq, id, count, length in rows:
                scores[seq, id] += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / mean))
        ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0][0]))
        return [(id, score) for (_, id), score in ranked[:k]]

    def frequency(self, link: sqlite3.Connection, term: str) -> int:
        """In how many items a token is."""
        return int(link.execute("SELECT count(*) FROM postings WHERE term = ?", (term,)).fetchone()[0])

    def size(self, link: sqlite3.Connection) -> int:
        """How many items are in the index."""
        return int(link.execute("SELECT count(*) FROM lengths").fetchone()[0])

    def faults(self, link: sqlite3.Connection) -> list[str]:
        """Whether it says what the items say."""
        lost = 0
        for part in chunks(link.execute("SELECT seq, tokens FROM items").fetchall()):
            lengths = dict(
                link.execute(
                    f"SELECT item, length FROM lengths WHERE item IN ({marks(part)})", [seq for seq, _ in part]
                )
            )
            lost += sum(lengths.get(seq) != len(tokens.split()) for seq, tokens in part)
        return [f"full-text index: {lost} items differ; `check --repair` makes a new one"] if lost else []

    def compact(self, link: sqlite3.Connection) -> None:
        """Leave nothing of what was taken out: rows of a table are overwritten when they go."""


def _rarity(total: int, frequency: int) -> float:
    """Robertson and Sparck Jones, with FTS5's floor for words that are in more than half of all items."""
    return max(1e-6, math.log((total - frequency + 0.5) / (frequency + 0.5)))


def text_index(link: sqlite3.Connection) -> TextIndex:
    """The best that this SQLite has."""
    try:
        link.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(x)")
        link.execute("DROP TABLE temp.probe")
    except sqlite3.OperationalError:
        return PostingIndex()
    return Fts5Index()
