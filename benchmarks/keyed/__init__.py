"""Steps by key: exchanges, aggregates, distinct values, sorts, heavy keys; time, memory and requests."""
