"""What routes find in the application's state, and in the scope of a request."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from bourn.server.accesslog import tell
from bourn.server.config import ServerConfig
from bourn.server.fleet import Fleet
from bourn.server.keys import OWNER
from bourn.server.telemetry import Telemetry
from bourn.stream import Reader


def fleet_of(http: HTTPConnection) -> Fleet:
    fleet: Fleet = http.app.state.fleet
    return fleet


def config_of(http: HTTPConnection) -> ServerConfig:
    config: ServerConfig = http.app.state.config
    return config


def owner_of(http: HTTPConnection) -> str:
    """A digest of the key that was shown; nobody else sees what is theirs."""
    owner: str = http.scope.get(OWNER, "")
    return owner


def note_opened(http: HTTPConnection, reader: Reader, model: str) -> None:
    """Count it, and tell the log."""
    telemetry: Telemetry = http.app.state.telemetry
    telemetry.opened(reader.origin, model)
    tell(http.scope, model=model, stream=reader.id, origin=reader.origin)
