"""Nothing outside the scope ever appears, by any way of reading."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensage_memory import New
from opensage_memory.embed import HashedEmbedder
from opensage_memory.scope import check_scopes, covers

NAMES = st.sampled_from(["a", "b", "ab", "a%", "_", "A", "a.b", "ä", "日本", "x y", "'", "`"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.fixture
def filled(open_memory):
    """A memory whose every text names its scope, tied together as far as it can be."""
    memory = open_memory(embedder=HashedEmbedder(32))
    scopes: list[str] = []

    def fill(paths):
        for scope in dict.fromkeys(paths):
            if scope in scopes:
                continue
            scopes.append(scope)
            mark = f"[{scope}]"
            news = [
                New(f"{mark} Shared Name asks {n}?", "message", f"s#{n}", session="s", author="AB"[n % 2])
                for n in range(9)
            ]
            memory.add_many(news, scope)
            memory.state("Shared Name", "lives in", mark, scope)
            memory.consolidate(scope)
            secret = memory.add(
                f"{mark} Shared Name secret", scope, sources=[item.id for _, item in memory.items("*")][:3]
            )
            if "/" in scope:
                memory.publish(secret.id, scope, scope.rpartition("/")[0])

    memory.fill = fill
    return memory


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.lists(PATHS, min_size=2, max_size=4), data=st.data())
def test_no_way_of_reading_shows_another_scope(filled, paths, data):
    filled.fill(paths)
    wanted = data.draw(
        st.lists(st.sampled_from(paths).flatmap(lambda p: st.sampled_from([p, p + "/*"])), min_size=1, max_size=2)
    )
    patterns = check_scopes(wanted)
    seen = []
    hits = filled.search("Shared Name secret asks lives", wanted, k=200, history=True, archived=True, explain=True)
    seen += [hit.item for hit in hits]
    for hit in hits[:12]:
        ids = {part for step in hit.path for part in step.split() if len(part) == 32}
        with filled.store.read() as reader:
            seen += reader.get(ids).values()
        origin = filled.why(hit.item.id, wanted)
        with filled.store.read() as reader:
            seen += reader.get(origin.sources).values()
        seen += origin.items
        items, edges = filled.neighbours(hit.item.id, wanted, hops=3)
        seen += items
        assert {end for edge in edges for end in (edge.source, edge.target)} <= {item.id for item in items}
    context = filled.context("Shared Name secret", wanted, 4000)
    with filled.store.read() as reader:
        seen += reader.get(context.ids).values()
        vector = HashedEmbedder(32).embed(["Shared Name secret"])[0]
        near = reader.nearest("hashed-32:32", vector, filled.view(wanted), 100)
        words = reader.lexical(["share", "name", "shared"], filled.view(wanted), 100)
        seen += reader.get(id for id, _ in [*near, *words]).values()
    seen += [item for _, item in filled.items(wanted, retired=True, ended=True, archived=True)]
    seen += filled.facts("Shared Name", "lives in", wanted, history=True)
    assert seen
    assert [item.scope for item in seen if not covers(patterns, item.scope)] == []
    assert filled.counts(wanted).items == len(filled.items(wanted, retired=True, ended=True, archived=True, limit=9999))
