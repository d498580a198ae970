"""Parts that all sources of files share: splits by bytes and lines, footers, types inferred, columns that changed, lines refused.

Begin with ``source``; its ``FooterSource`` is the same for files that end with an index.
"""
