"""The memory: one graph, one way in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from opensage_memory.checking import NAME, check_data
from opensage_memory.consolidation import Consolidation, Summarise, Tidied, rebuilt
from opensage_memory.embed.base import Embedder
from opensage_memory.enrichment import Ask, Enriched, Enrichment, queue
from opensage_memory.errors import BadInput, CannotUndo, ReadOnly, StoreUnavailable
from opensage_memory.facts import Claim, Facts, fact_key
from opensage_memory.forgetting import Forgetter
from opensage_memory.item import EDGE_TYPES, TRUSTS, Edge, Item, instant, new_id, now
from opensage_memory.merging import merge, publish, reunite
from opensage_memory.retrieval.context import Context, compose
from opensage_memory.retrieval.hit import Hit
from opensage_memory.retrieval.origin import Origin, origin
from opensage_memory.retrieval.search import Query, Search
from opensage_memory.scope import Scopes, View, check_scope, check_scopes, covers
from opensage_memory.store.base import Counts, Operation, Row, Store, Task
from opensage_memory.store.opening import open_store
from opensage_memory.store.recorder import Recorder, undo
from opensage_memory.text import index_text
from opensage_memory.vectors import Vectors
from opensage_memory.writing import Adder, New, When, fold


class Change:
    """One operation in its transaction."""

    def __init__(self, recorder: Recorder, id: str, scope: str, at: datetime) -> None:
        self.recorder, self.id, self.scope, self.at = recorder, id, scope, at


class Memory:
    """A graph memory over a store. May be used by several threads.

    Args:
        store: a store, or what `open_store` takes: a path of an SQLite file, or `neo4j://...`.
        embedder: makes vectors; none is needed.
        clock: the present, aware; for tests.
        undo_window: for how long an operation can be undone.

    Raises:
        Damaged, StoreUnavailable: the store cannot be opened.
    """

    def __init__(
        self,
        store: Store | str | Path,
        *,
        embedder: Embedder | None = None,
        clock: Callable[[], datetime] = now,
        undo_window: timedelta = timedelta(days=1),
    ) -> None:
        self.store: Store = open_store(store) if isinstance(store, str | Path) else store
        self.clock, self.undo_window = clock, undo_window
        self._vectors = Vectors(self.store, embedder)

    @property
    def trouble(self) -> str:
        """What is not as it should be, and what to do; empty when nothing is."""
        return str(getattr(self.store, "trouble", "")) or self._vectors.trouble

    @property
    def embedder(self) -> Embedder | None:
        """What makes vectors."""
        return self._vectors.embedder

    # --- writing ---------------------------------------------------------------------------------------------------

    def add(self, text: str | New, scope: str, **fields: Any) -> Item:
        """Remember a text; returns its item, which is an older one when it was there already.

        Args:
            text: the text, or a `New`.
            scope: whose it is.
            fields: of `New`, when a text is given.

        Raises:
            BadInput: blank text, malformed scope, unknown kind; nothing is stored.
        """
        return self.add_many([text if isinstance(text, New) else New(text, **fields)], scope)[0]

    def add_many(self, news: Sequence[New], scope: str) -> list[Item]:
        """Remember several in one transaction: all of them, or none."""
        check_scope(scope)
        vectors, failed = self._vectors.early([new.text for new in news if isinstance(new.text, str)])
        with self._change("add", scope) as change:
            adder = Adder(change.recorder, change.scope, change.at)
            items = [adder.add(new) for new in news]
            adder.finish()
            self._vectors.keep(change.recorder, adder.fresh, vectors, failed)
        return items

    def state(self, subject: str, relation: str, object: str, scope: str, **fields: Any) -> Item:
        """Remember a fact. Of a functional relation a subject has one object at a time.

        Args:
            subject: what it is about.
            relation: the relation's name, as written.
            object: what stands in it.
            scope: whose it is.
            fields: `functional` (else as declared), `sentence`, and fields of `New` (`at`, `until`, ...).
        """
        functional = fields.pop("functional", None)
        sentence = fields.pop("sentence", "")
        with self._change("state", scope) as change:
            if functional is None:
                functional = change.recorder.reads.meta(_relation(relation)) == "functional"
            claim = Claim(subject, relation, object, sentence, bool(functional), New("", **fields))
            fact = Facts(change.recorder, change.scope, change.at).state(claim)
            self._vectors.later(change.recorder)
        return fact

    def declare(self, relation: str, *, functional: bool = True) -> None:
        """Say whether a subject has one object at a time in a relation (lives in, works for) or many (likes)."""
        if not isinstance(relation, str) or not relation.strip():
            raise BadInput("a relation has a name, as `lives in`")
        with self.store.write() as writer:
            writer.set_meta(_relation(relation), "functional" if functional else "many")

    def supersede(self, id: str, text: str, scope: str, **fields: Any) -> Item:
        """Put another text in an item's place, from now on or from `at`; the old one stays in its time."""
        with self._change("supersede", scope) as change:
            old = self._one(change, id)
            new = New(text, **{"kind": old.kind, "trust": old.trust, "author": old.author, **fields})
            item = Facts(change.recorder, change.scope, change.at).supersede(old, new)
            self._vectors.later(change.recorder)
        return item

    def link(self, source: str, type: str, target: str, scope: str, *, relation: str = "", weight: float = 1.0) -> Edge:
        """Join two items of a scope by an edge."""
        if type not in EDGE_TYPES:
            raise BadInput(f"{type!r} is no type of edge: use one of {', '.join(EDGE_TYPES)}")
        if not isinstance(relation, str) or len(relation) > NAME:
            raise BadInput(f"a relation is a name of at most {NAME:,} characters")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise BadInput(f"an edge's weight is from 0 to 1, not {str(weight)[:40]}")
        with self._change("link", scope) as change:
            edge = Edge(self._one(change, source).id, type, self._one(change, target).id, relation, weight)
            change.recorder.put_edges([edge])
        return edge

    def merge(self, keep: str, gone: str, scope: str) -> Item:
        """Let one item stand for two of one scope and kind."""
        with self._change("merge", scope) as change:
            return merge(change.recorder, self._one(change, keep), self._one(change, gone), change.at)

    def publish(self, id: str, scope: str, to: str) -> Item:
        """Copy an item into a wider scope."""
        with self._change("publish", scope) as change:
            copy = publish(change.recorder, self._one(change, id), to, change.at)
            self._vectors.later(change.recorder)
        return copy

    def annotate(self, id: str, scope: str, **data: Any) -> Item:
        """Set entries of an item's data (None removes one); its text and times stay."""
        with self._change("annotate", scope) as change:
            item = self._one(change, id)
            kept = {key: value for key, value in {**item.data, **data}.items() if value is not None}
            check_data(kept)
            changed = item.but(data=kept)
            change.recorder.put([Row(changed, index_text(changed.text))])
        return changed

    def forget(self, ids: str | Iterable[str], scope: str, *, purge: bool = False) -> Operation | None:
        """Forget items and what only they bore out; None when none of them is in the scope.

        Until `vacuum`, or the end of the undo window, `undo` brings them back; `purge` runs `vacuum` at once.
        """
        wanted = [ids] if isinstance(ids, str) else list(ids)
        with self._change("forget", scope) as change:
            found = change.recorder.reads.get(wanted, self._everything(change.scope))
            Forgetter(change.recorder, change.id, change.at, rebuilt).forget(found)
        if purge:
            self.vacuum()
        with self.store.read() as reader:
            return reader.operation(change.id)

    def undo(self, operation: str, scope: str) -> Operation | None:
        """Take an operation of a scope back.

        Raises:
            CannotUndo: it is not there, its time is over, or a later one changed the same items.
        """
        with self._change(f"undo {operation}", scope) as change:
            reads = change.recorder.reads
            done = reads.operation(operation)
            if done is None or done.scope != change.scope:
                raise CannotUndo(f"no operation {operation!r} in {change.scope!r}")
            if not done.undo:
                raise CannotUndo(f"the time to undo {done.name} {operation} is over")
            for later in _later(reads.operations(10_000), operation):
                if set(later.touched) & set(done.touched):
                    raise CannotUndo(f"{later.name} {later.id} changed the same items later: undo it first")
            back = undo(change.recorder, done.undo, _needed(change.recorder, done))
            reunite(change.recorder, back, change.at)
            change.recorder.raw.log(Operation(done.id, done.name, done.scope, done.at, done.touched))
        with self.store.read() as reader:
            return reader.operation(change.id)

    def consolidate(self, scope: str, summarise: Summarise | None = None) -> Tidied:
        """Merge near duplicates, write summaries of sessions, put old parts of them away. Loses nothing."""
        with self._change("consolidate", scope) as change:
            done = Consolidation(change.recorder, change.scope, change.at, summarise).run()
            self._vectors.later(change.recorder)
        return done

    # --- reading ---------------------------------------------------------------------------------------------------

    def view(self, scope: Scopes, *, as_of: When = None, **fields: Any) -> View:
        """What a reader of these scopes is shown."""
        for trust in fields.get("trusts") or ():
            if trust not in TRUSTS:
                raise BadInput(f"{trust!r} is no trust: use one of {', '.join(TRUSTS)}")
        return View(check_scopes(scope), self.clock(), as_of=instant(as_of), **fields)

    def search(
        self,
        query: str,
        scope: Scopes,
        k: int = 10,
        *,
        kinds: Sequence[str] | None = None,
        as_of: When = None,
        budget_tokens: int | None = None,
        explain: bool = False,
        trusts: Sequence[str] | None = None,
        history: bool = False,
        archived: bool = False,
        walk: float = 0.0,
    ) -> list[Hit]:
        """The items that answer a query best.

        Args:
            query: literal text in any script.
            scope: one or more scopes to read; `a/*` reads below `a`, `*` everything.
            k: how many at most.
            kinds: only of these kinds; None for all but entities and sessions.
            as_of: what was true then.
            budget_tokens: texts of the hits together have at most about this many tokens (four characters each).
            explain: fill `parts` and `path` of the hits.
            trusts: only of these trusts.
            history: also what is over and what was taken back.
            archived: also what was put away.
            walk: what personalised PageRank around the best hits adds at most (0.3 shows it); it finds what shares no
                word with the query. Off by default.
        """
        view = self.view(scope, as_of=as_of, trusts=_tuple(trusts), retired=history, ended=history, archived=archived)
        vector = self._vectors.of(query)
        with self.store.read() as reader:
            search = Search(reader, view, self._vectors.model)
            return search.best(Query(query, k, _tuple(kinds), vector, budget_tokens, explain, walk))

    def context(self, query: str, scope: Scopes, budget_tokens: int = 800, **filters: Any) -> Context:
        """Text for a prompt: the best items in the order of time, each with id and trust, within the budget."""
        hits = self.search(query, scope, k=50, **filters)
        with self.store.read() as reader:
            made = compose(hits, budget_tokens, reader)
        if made.ids and self.store.writable:
            with contextlib.suppress(ReadOnly, StoreUnavailable), self.store.write() as writer:  # else not counted
                writer.use(made.ids)
        return made

    def get(self, id: str, scope: Scopes) -> Item | None:
        """The item with this id, over, retired and archived ones too; None when the scopes do not show it."""
        with self.store.read() as reader:
            return reader.get([id], self._everything(scope)).get(id)

    def items(self, scope: Scopes, *, after: int = 0, limit: int = 1000, **filters: Any) -> list[tuple[int, Item]]:
        """Items in the order in which they came, with their number; go on with the last number."""
        with self.store.read() as reader:
            return reader.scan(self.view(scope, **filters), after=after, limit=limit)

    def find(self, key: str, scope: Scopes, **filters: Any) -> list[Item]:
        """Items with a key."""
        with self.store.read() as reader:
            return reader.find(self.view(scope, **filters), key)

    def facts(
        self, subject: str, relation: str, scope: Scopes, *, as_of: When = None, history: bool = False
    ) -> list[Item]:
        """Facts of a subject and relation, in the order of time: what is true now, was true then, or all."""
        view = self.view(scope, as_of=as_of, kinds=("fact",), ended=history, retired=history)
        with self.store.read() as reader:
            found = reader.find(view, fact_key(subject, relation))
        return sorted(found, key=lambda fact: (fact.valid_from is not None, fact.valid_from or fact.created_at))

    def neighbours(self, id: str, scope: Scopes, *, hops: int = 1, limit: int = 100) -> tuple[list[Item], list[Edge]]:
        """Items around one, nearest first, and the edges among them."""
        view = self.view(scope)
        with self.store.read() as reader:
            around = reader.hop([id], view, hops, limit)
            items = list(reader.get(around, view).values())
            edges = reader.edges(around, view, direction="out")
        return items, [edge for edge in edges if edge.source in around and edge.target in around]

    def why(self, id: str, scope: Scopes) -> Origin:
        """Where an item comes from: its sources, what it was made from, what it took the place of."""
        with self.store.read() as reader:
            return origin(reader, id, self._everything(scope))

    def operations(self, scope: Scopes, limit: int = 20) -> list[Operation]:
        """The last changes in these scopes, last first."""
        view = self.view(scope)
        with self.store.read() as reader:
            return [done for done in reader.operations(10_000) if covers(view.scopes, done.scope)][:limit]

    def counts(self, scope: Scopes | None = None) -> Counts:
        """How much there is, in all or in some scopes."""
        with self.store.read() as reader:
            return reader.counts(None if scope is None else self._everything(scope))

    # --- upkeep ----------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is wrong with the store, a line each."""
        return self.store.check()

    def vacuum(self) -> None:
        """End the time to undo, and leave no byte of what was forgotten in the files."""
        with self.store.write() as writer:
            writer.forget_undo(self.clock() + timedelta(days=36500))
        self.store.vacuum()

    def waiting(self, work: str = "embed", limit: int = 100) -> list[Task]:
        """Items that wait to be embedded or enriched, and why."""
        with self.store.read() as reader:
            return reader.tasks(work, limit)

    def reindex(self, batch: int = 128, progress: Callable[[int], None] | None = None) -> int:
        """Embed everything that has no vector of the embedder; can be broken off and goes on. Returns how many.

        Vectors of another model go when it begins.

        Raises:
            BadInput: there is no embedder.
            BadVectors: the embedder fails; what it embedded so far is kept.
        """
        return self._vectors.renew(batch, progress)

    def enqueue(self, ids: Iterable[str], scope: str) -> int:
        """Let a model read these items later (`enrich`); returns how many wait now that did not."""
        with self.store.read() as reader:
            items = list(reader.get(ids, self._everything(scope)).values())
        queue(self, items)
        return len(items)

    def enrich(self, scope: str, ask: Ask, *, max_calls: int = 50, max_tokens: int = 50_000) -> Enriched:
        """Let a model read what waits in the queue: at most so many calls and tokens, failures told and kept.

        Nothing calls a model but this.
        """
        return Enrichment(self, check_scope(scope), ask, max_calls, max_tokens).run()

    def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        self.store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- within ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _change(self, name: str, scope: str) -> Iterator[Change]:
        scope, at = check_scope(scope), self.clock()
        with self.store.write() as writer:
            change = Change(Recorder(writer, self._vectors.model), new_id(), scope, at)
            yield change
            writer.forget_undo(at - self.undo_window)
            touched = change.recorder.touched
            if touched or change.recorder.changed_edges:
                writer.log(Operation(change.id, name, scope, at, touched, change.recorder.undo()))

    def _one(self, change: Change, id: str) -> Item:
        item = change.recorder.reads.get([id], self._everything(change.scope)).get(id)
        if item is None:
            raise BadInput(f"no item {id!r} in {change.scope!r}")
        return item

    def _everything(self, scope: Scopes) -> View:
        return View(check_scopes(scope), self.clock()).everything()


def _relation(name: str) -> str:
    return f"relation:{fold(name)[:400]}"


def _tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    return (values,) if isinstance(values, str) else tuple(values)


def _later(operations: Iterable[Operation], id: str) -> Iterator[Operation]:
    """Operations after one that still count, of a list with the last first: none that was undone, and no undoing."""
    over: set[str] = set()
    for operation in operations:
        if operation.id == id:
            return
        undone = operation.name.removeprefix("undo ")
        if undone != operation.name and operation.id not in over:
            over |= {operation.id, undone}
        if operation.id not in over:
            yield operation


def _needed(recorder: Recorder, done: Operation) -> set[str]:
    """Entities and sessions that the operation made and that others have come to use."""
    mine = set(done.touched)
    made = [item.id for item in recorder.reads.get(mine).values() if item.kind in ("entity", "session")]
    return {
        end
        for edge in recorder.reads.edges(made)
        for end, other in ((edge.source, edge.target), (edge.target, edge.source))
        if end in made and other not in mine
    }
