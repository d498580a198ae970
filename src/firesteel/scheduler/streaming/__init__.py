"""The adaptive scheduler of streams (FLIP-461, FLIP-160, FLIP-322): when a running query is rescaled, and to what.

Begin with ``adaptive_scheduler`` and ``states``; ``wanted`` is what it should come to, ``rescaling`` when and how.
"""
