"""The code of functions and the packages that they require, as folders that boxes see read-only.

- *Whole.* A folder has its name only once it is complete, whatever is killed meanwhile.
- *Once.* Code is unpacked once for each digest, packages are installed once for each list of requirements.
- *Checked.* Code is compared with its digest when it is unpacked, and no member of it leaves its folder.
- *Bounded.* Bytes and files of code, and time, processes, memory and disk of a build have limits with names.
- *No login leaks.* Logins of the operator's index are in no log or message, and no build from source can read them.

Never: runs code of a package outside of a sandbox, where the host can make one; decides which folders are still in use.
"""

from rota.runtime.code.cache import CodeCache, CodeRefused
from rota.runtime.code.packages import Packages, environment_name
from rota.runtime.code.places import CODE, PACKAGES, cached

__all__ = ["CODE", "PACKAGES", "CodeCache", "CodeRefused", "Packages", "cached", "environment_name"]
