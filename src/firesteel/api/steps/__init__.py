"""Steps of a pipeline by topic, as functions from a ``Pipeline`` to a longer one; the methods of ``data_stream`` and ``keyed_stream`` call them."""
