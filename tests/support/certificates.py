"""The system's certificates, read once per process: each HTTP client reads them, and tests make hundreds of clients."""

import functools
import ssl

import httpx


def read_once():
    """From now on clients share a context for each way to ask for one. Tests speak plain HTTP: nobody changes it."""
    ssl.create_default_context = functools.cache(ssl.create_default_context)
    httpx.Client().close()
