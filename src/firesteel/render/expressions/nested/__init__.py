"""Arrays, maps and structs, and functions of them. Begin with ``arrays``."""
