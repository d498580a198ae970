"""The module that ``from firesteel.arrow import col`` imports: :mod:`firesteel.api.expressions.arrow` itself."""

import sys

from firesteel.api.expressions import arrow

sys.modules[__name__] = arrow
