"""The job's directories on the driver's side: made, cleaned, published, and found again when a driver was killed."""
