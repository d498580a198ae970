"""The append-only record of what a job did and why, and its readers: explain and progress."""
