"""Text analysis without a model: words, names and dates of a text, in any script."""

from opensage_memory.text.dates import DateSpan, dates
from opensage_memory.text.entities import Mention, entities
from opensage_memory.text.words import FTS5_TOKENIZER, index_text, match_any, query_tokens, tokens

__all__ = [
    "FTS5_TOKENIZER",
    "DateSpan",
    "Mention",
    "dates",
    "entities",
    "index_text",
    "match_any",
    "query_tokens",
    "tokens",
]
