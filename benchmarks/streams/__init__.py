"""Running streams: a load that changes, and what a rescale costs."""
