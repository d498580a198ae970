"""``firesteel stream``: runs a stream, and asks or tells a running one from another terminal. Begin with ``commands``."""
