"""Addresses of the pages: everything that leads from one to another, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode


@dataclass(frozen=True, slots=True)
class Links:
    """``root``: before all of them."""

    root: str = ""

    def jobs(self, **query: object) -> str:
        return _with(f"{self.root}/", query)

    def job(self, id: str, tab: str = "", **query: object) -> str:
        """``tab``: "timeline", "decisions", "failures", "slots", "options", "what-if"; empty: the overview."""
        return _with(f"{self.root}/jobs/{quote(id, safe='')}{f'/{tab}' if tab else ''}", query)

    def vertex(self, id: str, vertex: int, **query: object) -> str:
        return self.job(id, f"vertices/{vertex}", **query)

    def subtask(self, id: str, vertex: int, subtask: int) -> str:
        return self.job(id, f"vertices/{vertex}/subtasks/{subtask}")

    def compare(self, **query: object) -> str:
        return _with(f"{self.root}/compare", query)

    def api(self, id: str, rest: str = "") -> str:
        return f"{self.root}/api/v1/jobs/{quote(id, safe='')}{rest}"

    def events(self, id: str) -> str:
        return self.api(id, "/events")

    def file(self, name: str) -> str:
        return f"{self.root}/files/{name}"


def _with(address: str, query: Mapping[str, object]) -> str:
    """Values that are None or empty are left out."""
    given = {key.rstrip("_"): str(value) for key, value in query.items() if value is not None and value != ""}
    return f"{address}?{urlencode(given)}" if given else address
