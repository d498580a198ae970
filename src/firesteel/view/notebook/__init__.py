"""Streams and jobs as a notebook shows them: HTML tables and inline SVG, without JavaScript. Reads records and graphs only."""
