"""The adaptive scheduler of streams (FLIP-461, FLIP-160, FLIP-322): when a running query is rescaled, and to what.

Begin with ``adaptive_scheduler`` and ``states``; ``wish`` is what it should come to, ``manager`` when, ``rescales`` what became of it.
"""
