"""The pages: Jinja2 templates filled from ``ui.views``, one style sheet, one small script for live updates. Begin with ``pages``."""
