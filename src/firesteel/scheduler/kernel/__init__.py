"""The data that go into the scheduler and come out of it: events, commands, records, states and metrics.

Begin with ``events`` and ``commands``. ``recorder`` collects what one event causes; ``states`` is the table of transitions.
"""
