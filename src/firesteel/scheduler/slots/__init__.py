"""Slots: who gets one, of which resources (FLIP-56, FLIP-169), on which worker, and who waits.

Begin with ``allocators`` (the interface); ``pool`` cuts slots of their own resources, ``fine_grained`` is its part beside the scheduler.
"""
