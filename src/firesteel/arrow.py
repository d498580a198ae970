"""Lets ``from firesteel.arrow import col`` work: becomes the module of Arrow's expressions itself."""

import sys

from firesteel.api.expressions import arrow

sys.modules[__name__] = arrow
