"""A whole stream under a virtual clock: its query, its cluster, its user, and what must hold of it whatever happens."""
