"""File systems of a process that dies at one of its calls."""

from __future__ import annotations

CALLS = (
    *("create_dir", "move", "delete_file", "delete_dir", "get_file_info"),
    *("open_output_stream", "open_input_stream", "open_input_file"),
)


class Died(BaseException):
    pass


class Dying:
    """Counts a process's calls, and lets none through from the ``left``-th on."""

    left = None

    def call(self, name, *args, **options):
        if self.left is not None:
            if self.left == 0:
                raise Died
            self.left -= 1
        return getattr(self.base, name)(*args, **options)


def dying(base):
    """The file system ``base``, of a process that can die."""
    calls = {name: lambda self, *args, _name=name, **options: self.call(_name, *args, **options) for name in CALLS}
    made = type("DyingFiles", (Dying, type(base)), calls)()
    made.base = base
    return made
