"""The control plane alone, without Spark: its phases from 1,000 to 1,000,000 subtasks, and its policies."""
