"""The formats of files: Parquet, Arrow IPC, CSV, JSON lines and text."""
