"""Claims: an instance for one caller alone, while its lease is renewed.

- *Nothing is left.* A caller that leaves before it is answered leaves no claim and no hold behind.
- *Once.* A claim that is asked for twice under one name has one instance.
- *This run.* A hold ends with the run that was claimed: what is started after that is not the holder's.
- *As new.* An instance is given to the next only when its runner has reset it, or it is replaced or untouched.
"""
