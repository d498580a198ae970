"""An environment."""

from firesteel import ExecutionEnvironment, col, lit

env = ExecutionEnvironment.get_or_create("local[2]")
