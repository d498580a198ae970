"""Lets ``from firesteel.functions import col`` work: becomes the module of PySpark's functions itself."""

import sys

from firesteel.api.expressions import functions

sys.modules[__name__] = functions
