"""One file per family of models, found by the name that model files give.

Start reading at `llama.py`; the others state how they differ. Nothing imports them by name: see `models.architecture`.
"""
