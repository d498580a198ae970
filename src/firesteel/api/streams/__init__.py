"""Streams as users have them: steps by topic, steps behind ``key_by``, ends, and settings of the last step.

Begin with ``data_stream``; then ``keyed_stream``, ``ends`` (sinks, actions, rows kept, settings).
A method is the docstring that users read and a call: what it does is in ``steps``.

``DataStream`` inherits in one line, from ``Ends``, which inherits from ``Configurable``, because each knows less than the one before: a sink
has settings and no ends, and no end makes another stream. A base class for a topic of steps (joins, services) would have to
make streams of the class that it is a part of; one module for all would be longer than modules may be.
"""
