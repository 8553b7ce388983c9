"""The code of functions and the packages that they require, as folders that boxes are shown and cannot write to.

Promises: a folder is there whole or not at all, whatever is killed when; it is made once for all that use it; what it
is made of was checked against its digest; everything has a bound.

Never: runs anything of a function outside of a sandbox, where there is one; decides what is still in use.
"""

from rota.runtime.code.cache import CodeCache, CodeRefused
from rota.runtime.code.packages import Packages, environment_name
from rota.runtime.code.places import CODE, PACKAGES, cached

__all__ = ["CODE", "PACKAGES", "CodeCache", "CodeRefused", "Packages", "cached", "environment_name"]
