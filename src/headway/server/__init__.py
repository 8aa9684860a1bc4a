"""The engine over HTTP, as OpenAI's clients expect it.

Knows nothing of scheduling: it submits requests, reads streams and words answers. Start reading at `app`, then
`routes_chat` and `stream`.
"""

from headway.server.accounts import check_accounts, usage_path
from headway.server.app import create_app
from headway.server.config import ServerConfig
from headway.server.port import ServedEngine, ServedStream, ServedTokenizer
from headway.server.serve import serve

__all__ = [
    "ServedEngine",
    "ServedStream",
    "ServedTokenizer",
    "ServerConfig",
    "check_accounts",
    "create_app",
    "serve",
    "usage_path",
]
