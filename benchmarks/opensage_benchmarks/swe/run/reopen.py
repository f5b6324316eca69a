"""Opening a source of tasks again, where the worker is."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from typing import Any, cast

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.opening import open_source
from opensage_benchmarks.swe.task import TaskSource


def reopen(kind: str, path: str, options: Mapping[str, Any]) -> TaskSource:
    """The source that a configuration names; the same object each time in one process.

    Raises:
        TaskError: there is none.
    """
    return _opened(kind, path, json.dumps(dict(options), sort_keys=True))


@functools.cache
def _opened(kind: str, path: str, options: str) -> TaskSource:
    module, colon, name = kind.partition(":")
    if not colon:
        return open_source(path, kind=kind or None, **json.loads(options))
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TaskError(f"no source {kind!r}: {error}; write module:factory") from error
    return cast("TaskSource", factory(path, **json.loads(options)))
