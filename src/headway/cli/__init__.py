"""The command line: one module per command, each importing what it runs only when it runs.

Must not know: how anything is computed; it reads flags, calls one lower part and prints. Start reading at `main`.
"""
