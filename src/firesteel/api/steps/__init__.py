"""Steps of a pipeline by topic, as functions from a ``Pipeline`` to a longer one; the methods of ``streams`` call them."""
