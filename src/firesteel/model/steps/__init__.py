"""Numbers of a job's steps: counts of what they did beside rows and bytes, and costs of earlier runs."""
