"""The module that ``from firesteel.functions import col`` imports: :mod:`firesteel.api.expressions.functions` itself."""

import sys

from firesteel.api.expressions import functions

sys.modules[__name__] = functions
