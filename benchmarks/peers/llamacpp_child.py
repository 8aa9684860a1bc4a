"""Runs in llama.cpp's environment: its HTTP server until standard input ends.

python llamacpp_child.py '{"model": PATH, "threads": 2, "slots": 16, "context": 8192, "port": 8080}'
"""

import json
import sys

import xllamacpp


def main() -> None:
    """Serve. What is not named here is llama.cpp's default."""
    wanted = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = wanted["model"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.n_parallel, params.n_ctx = wanted["slots"], wanted["context"]
    params.hostnames, params.port = ["127.0.0.1"], wanted["port"]
    params.cache_ram_mib = 0  # copies of ended prompts: none comes back here, so keeping them would only cost time
    server = xllamacpp.Server(params)
    print(xllamacpp.get_system_info(), flush=True)
    sys.stdin.read()
    del server  # it ends with this object


main()
