"""What a Python with this folder in its path begins with: it finds no pandas, as in an installation without extras."""

import sys
from _frozen_importlib_external import PathFinder  # loaded already, unlike importlib.machinery


class WithoutPandas(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname == "pandas" else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutPandas
