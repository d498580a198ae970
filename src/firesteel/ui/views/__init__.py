"""Views: pure functions from a journal's records to frozen structs, which the REST answers and the pages show. Begin with ``structs``."""
