"""The storage of objects: any location that ``pyarrow.fs`` can open, with retries, caches and marks of owners. Begin with ``store``."""
