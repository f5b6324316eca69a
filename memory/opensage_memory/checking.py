"""Whether what is to be added can be stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opensage_memory.errors import BadInput
from opensage_memory.item import KINDS, TRUSTS, instant

if TYPE_CHECKING:
    from opensage_memory.writing import New

NAME = 1000
"""Characters of a key, an author, a session's name, an id."""
LARGEST = 1 << 20
"""Characters of an item's data as JSON."""


def check(new: New) -> None:
    """Whether it can be stored.

    Raises:
        BadInput: kind or trust is none of ours, the data is no JSON, it ends before it begins.
    """
    if new.kind not in KINDS:
        raise BadInput(f"{new.kind!r} is no kind of item: use one of {', '.join(KINDS)}")
    if new.trust not in TRUSTS:
        raise BadInput(f"{new.trust!r} is no trust: use one of {', '.join(TRUSTS)}")
    check_names(new)
    check_data(new.data)
    began, ended = instant(new.at), instant(new.until)
    if began is not None and ended is not None and ended < began:
        raise BadInput(f"it ends ({ended.isoformat()}) before it begins ({began.isoformat()})")


def check_names(new: New) -> None:
    """Whether all that names something is a text, and short.

    Raises:
        BadInput: it is not.
    """
    lists = (new.sources, new.derived)
    if any(isinstance(names, str) or not isinstance(names, Sequence) for names in lists):
        raise BadInput("sources and derived are lists of ids")
    for name in (new.key, new.author, new.session, new.reply_to, *new.sources, *new.derived):
        if not isinstance(name, str) or len(name) > NAME:
            raise BadInput(
                f"key, author, session, reply_to, sources and derived are texts of at most {NAME:,} characters each, "
                f"not {str(name)[:40]!r}: put long texts into `text`"
            )


def check_data(data: object) -> None:
    """Whether it can be the data of an item.

    Raises:
        BadInput: no mapping from texts, no JSON, or over 1 MiB.
    """
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise BadInput("data is a mapping from names to JSON values")
    try:
        size = len(json.dumps(dict(data), allow_nan=False)) if data else 0
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"data must be JSON: {error}") from error
    if size > LARGEST:
        raise BadInput("data has at most 1 MiB: put long texts into `text`")
