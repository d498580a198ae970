"""A notebook or ``python`` finds modules in the folder it was started in."""

import sys

sys.path.insert(0, "")
