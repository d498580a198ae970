"""The one registry of options: key, type, default, doc, deprecated keys. ``docs/options.md`` is generated from it.

Keys of the seed designs are kept word for word; today's Flink keys are aliases; what only Firesteel has is under
``firesteel.``. A short name (the last part of a key) is understood wherever it is unambiguous.

Begin with ``jobs`` for the options themselves (``restart`` and ``streams`` are topics of their own) and with
``registry`` for how they are kept and given values. ``layers`` and ``files`` are where values come from beside the program.
Imports ``errors`` alone.
"""

from firesteel.options.jobs import *  # noqa: F403 - the list, by topic  # noqa: F403  # noqa: F403
from firesteel.options.registry import Layer as Layer
from firesteel.options.registry import Options as Options
from firesteel.options.registry import Origin as Origin
from firesteel.options.registry import all_options as all_options
from firesteel.options.registry import format_value as format_value
from firesteel.options.registry import lookup as lookup
from firesteel.options.registry import lookup_family as lookup_family
from firesteel.options.registry import parse_int as parse_int
from firesteel.options.registry import parse_seconds as parse_seconds
from firesteel.options.registry import parse_size as parse_size
from firesteel.options.restart import *  # noqa: F403  # noqa: F403
from firesteel.options.streams import *  # noqa: F403  # noqa: F403  # noqa: F403
