"""The system's certificates, read once per process: each HTTP client reads them, and tests make hundreds of clients."""

import functools
import ssl


def read_once():
    """From now on clients share a context for each way to ask for one. Tests speak plain HTTP: nobody changes it."""
    import httpx  # the process that spreads the tests begins sooner without it

    ssl.create_default_context = functools.cache(ssl.create_default_context)
    httpx.Client().close()
