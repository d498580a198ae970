"""Environment variables of the Python workers of one batch: Spark keeps workers of their own for each environment.

PySpark reads ``SparkContext.environment`` when it wraps a function for its workers.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

_wrapping = threading.Lock()


class WithEnvironment:
    """A SparkContext with more variables, for an RDD made of it (``rdd.ctx``) and what is derived from that."""

    def __init__(self, context: Any, variables: Mapping[str, str]) -> None:
        self._context = context
        self.environment = {**context.environment, **variables}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


@contextmanager
def environment(context: Any, variables: Mapping[str, str]) -> Generator[None]:
    """The same for a DataFrame's functions, which ask the session for its context: one batch at a time wraps them."""
    with _wrapping:
        before = context.environment
        if variables:
            context.environment = {**before, **variables}
        try:
            yield
        finally:
            context.environment = before
