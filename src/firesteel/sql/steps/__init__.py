"""Relations as steps: begin with ``steps``."""
