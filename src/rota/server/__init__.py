"""HTTP, and nothing but HTTP: Kubernetes' API over TLS and a Unix socket, and the gateway beside it.

Promises: what the registry says is what a client hears, in Kubernetes' URLs, codes and words; every connection, head,
body, stream and credential has a bound with a proper answer; nothing is served without a credential but health; every
write leaves a line in the audit trail.

Never: decides what a verb means, keeps anything for a client that does not read, writes a Secret's data anywhere.
"""
