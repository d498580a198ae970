"""Options of the page and REST; Flink's keys where Flink has them."""

from __future__ import annotations

import re
from typing import Any

from firesteel.options.registry import Kind, Scope, switch, text


def parse_ports(value: Any) -> str:
    """``"8081"``, ``"8081-8099"``; ``"0"``: any that is free. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", "" if isinstance(value, bool) else str(value))
    first = int(match[1]) if match else -1
    last = int(match[2] or first) if match else -1
    if not 0 <= first <= last <= 65535:
        raise ValueError("a port, or a range of ports such as '8081-8099'")
    return f"{first}" if first == last else f"{first}-{last}"


def ports_of(text: str) -> range:
    """Of a value of ``rest.bind-port``."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


UI_ENABLED = switch.of(Scope.BOTH)(
    "firesteel.ui.enabled",
    False,
    "Whether the jobs and streams of this process are shown on a page, and over REST, while it runs (needs the extra ui). One line says where. firesteel run --ui sets it.",
)
BIND_ADDRESS = text.of(Scope.BOTH)(
    "rest.bind-address",
    "127.0.0.1",
    "The address that the page and REST are served at. At any but this machine's own (127.0.0.1, ::1, localhost), everything needs the token. 0.0.0.0: all of the machine's addresses.",
)
BIND_PORT = Kind(parse_ports, Scope.BOTH)(
    "rest.bind-port",
    "8081-8180",
    "The port of the page and REST, or a range of which the first free one is taken. 0: any that is free.",
)
UI_TOKEN_FILE = text.of(Scope.BOTH)(
    "firesteel.ui.token-file",
    None,
    "The file with the token that is needed to change anything over REST or on the page (cancel, stop, rescale), and at other addresses than this machine's own for everything. A file that is not there is made; one that others can read is refused. Unset: ui-token beside the journals.",
)
