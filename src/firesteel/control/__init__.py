"""Speaking with a running stream from another process: a Unix socket beside its checkpoint, for its owner only."""
