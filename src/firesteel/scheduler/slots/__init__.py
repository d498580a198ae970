"""Slots: who gets one, of which resources (FLIP-56, FLIP-169), on which worker, and who waits.

Begin with ``allocators`` (Spark's own slots, and who overrides them); ``pool`` cuts slots of their own resources, ``requests`` is what waits.
"""
