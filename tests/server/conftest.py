import httpx
import pytest

from headway.server import ServerConfig, create_app
from tests.support.fake_engine import FakeEngine


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def serve():
    """Make a client of an application that no port is opened for."""

    def make(engine, **settings):
        app = create_app(engine, ServerConfig(**settings))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")

    return make


@pytest.fixture
def client(engine, serve):
    return serve(engine)
