"""Numbers as people read them: sizes, counts, durations."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Bytes: ``63.1 MiB``, ``512 B``."""
    amount, unit = float(count), 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    if unit == 0 or abs(amount) >= 100:
        return f"{amount:.0f} {_UNITS[unit]}"
    return f"{amount:.1f} {_UNITS[unit]}"


def number(count: int) -> str:
    return f"{count:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 subtask``, ``1,200 subtasks``."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """``12 ms``, ``4.2 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def some(items: list[int], limit: int = 6) -> str:
    """Subtask numbers, runs folded: ``0-7, 12``; the rest as ``and 40 more``."""
    runs: list[tuple[int, int]] = []
    for item in sorted(set(items)):
        if runs and runs[-1][1] == item - 1:
            runs[-1] = (runs[-1][0], item)
        else:
            runs.append((item, item))
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit])
    left = sum(b - a + 1 for a, b in runs[limit:])
    return f"{text} and {left} more" if left else text
