"""What a notebook shows of streams and jobs: HTML tables and inline SVG, without JavaScript. Reads records and graphs only."""
