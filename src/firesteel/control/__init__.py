"""Communication with a running stream from another process: a Unix socket next to its checkpoint. Only its owner may use it."""
