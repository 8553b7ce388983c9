"""The HTTP of a server: Kubernetes' API over TLS and a Unix socket, the gateway beside it, and the edge for functions.

- *Kubernetes' API.* URLs, status codes and the words of errors are Kubernetes'. The registry decides what a verb does.
- *Closed.* The API and the gateway serve nothing without a credential but health and the public certificate authority.
- *Bounded.* Connections, heads, bodies, requests of a credential and unread answers have limits, each with an answer.
- *Recorded.* Every write has a line in the audit trail, which never has content of the object.

Never: decides what a verb means, keeps anything for a client that does not read, writes a Secret's data anywhere.
"""
