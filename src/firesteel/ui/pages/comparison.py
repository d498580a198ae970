"""Two jobs side by side: why was it slower than yesterday?"""

from __future__ import annotations

from firesteel.ui.pages.source import Asked, Source
from firesteel.ui.pages.templates import render

MOST_CHOICES = 200


def comparison_page(source: Source, asked: Asked) -> str:
    """Without both jobs, what to choose them from."""
    left, right = asked.text("left"), asked.text("right")
    jobs = source.jobs(text="", status="", kind="job", sort="-began", offset=0, limit=MOST_CHOICES).items
    view = source.comparison(left, right) if left and right else None
    most = (
        max((abs(one.seconds_more) for one in view.vertices if one.seconds_more is not None), default=0.0)
        if view
        else 0.0
    )
    return render("comparison.html", asked, jobs=jobs, left=left, right=right, view=view, most=most)
