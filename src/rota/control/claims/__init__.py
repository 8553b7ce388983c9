"""Claims: an instance for one caller alone, while its lease is renewed.

- *Nothing is left.* A caller that leaves before it is answered leaves no claim and no hold behind.
- *Once.* Two requests for a claim of one name get one claim with one instance.
- *This run.* A hold ends with the claimed run of its instance. A run that is started after that is not the holder's.
- *As new.* An instance gets its next holder only after its runner has reset it, unless it is replaced or untouched.
"""
