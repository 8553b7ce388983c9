"""Pods: the maker of instances on a Kubernetes cluster, as Pods and PersistentVolumeClaims.

- An instance has one Pod of its name at most; what somebody else made under that name is never touched.
- The value of a Secret is in nothing that is written: a Pod refers to it.
- A Pod is deleted with its uid and a grace, never by force: what may still run on a node that is away is not forgotten.
- What a Pod cannot give (a worker, a proxy for egress, a sandbox without a runtime class) is refused with the reason.

`specs.py` and `statuses.py` are pure: from an Instance to the Pod that it asks for, and from a Pod to what is reported.
"""
