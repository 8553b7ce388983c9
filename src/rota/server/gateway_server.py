"""The gateway of a Rota server: all parts, on the server's own store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rota.client import Client
from rota.engine import StoreObjects
from rota.registry import Registry
from rota.runtime.blobs import Blobs
from rota.server.access import Endpoints
from rota.server.audit import Audit
from rota.server.auth import Tokens
from rota.server.blobs import BlobRequests
from rota.server.cells import CellRequests
from rota.server.claims import ClaimRequests
from rota.server.controllers import Running
from rota.server.gateway import Gateway
from rota.server.gateway_cells import CellsPart
from rota.server.gateway_running import RunningPart
from rota.server.gateway_store import StorePart
from rota.server.gateway_tokens import TokensPart
from rota.server.hub_tunnel import Tunnels
from rota.server.shedding import Shedding
from rota.server.signed_tokens import SignedTokens
from rota.server.tables import Tables

ENDPOINTS = Endpoints((*StorePart.endpoints, *TokensPart.endpoints, *CellsPart.endpoints, *RunningPart.endpoints))
"""Everything below `/v1`, and who may use it."""


def server_gateway(
    registry: Registry,
    tokens: Tokens,
    audit: Audit,
    home: Path,
    authority: Path,
    claim_tokens: SignedTokens,
    tables: Tables,
    *,
    running: Running = lambda: None,
    shedding: Shedding | None = None,
    edge: str = "",
    connections: Callable[[], int] = lambda: 0,
    revoked: Callable[[str], None] = lambda token_id: None,
) -> Gateway:
    """Make the gateway. `revoked` gets the id of a revoked token; `edge` is the URL of webhooks."""
    objects, shedding = StoreObjects(registry), shedding or Shedding()
    claims = ClaimRequests(Client.local(registry), objects, audit, claim_tokens)
    tunnels = Tunnels(audit)

    def end(token_id: str) -> bool:
        if not tokens.revoke(token_id):
            return False
        revoked(token_id)
        return True

    parts = (
        StorePart(registry, audit, home, shedding, edge=edge, connections=connections),
        TokensPart(tokens, objects, audit, claims, running, end),
        CellsPart(CellRequests(tokens, audit, authority), objects, audit, tunnels, running, end),
        RunningPart(objects, audit, claims, BlobRequests(Blobs(home), audit), tunnels, tables, running),
    )
    return Gateway(parts, objects, audit, shedding)
