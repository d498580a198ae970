"""Pictures of the pages, SVG as text: graph, histogram, timeline, lines over time. Bounded in size, and readable without colours."""
