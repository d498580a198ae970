"""Steps that make one stream of several: unions and set operations, and joins of plain streams."""
