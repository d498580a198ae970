"""Relations as steps: begin with ``steps``. Groups of the step API are made here, too (``groups``)."""
