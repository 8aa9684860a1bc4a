"""JSON files of a model folder, as objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headway.errors import BadModelFile
from headway.models.metadata import Metadata

_MOST_BYTES = 1 << 28  # tokenizers of large vocabularies have a few tens of millions


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises BadModelFile for a file that is absent, no JSON, or holds something else."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadModelFile(f"{path} is larger than {_MOST_BYTES} bytes, which no such file is")
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadModelFile(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BadModelFile(f"{path} is not JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict):
        raise BadModelFile(f"{path} holds no JSON object")
    return value


def read_metadata(path: Path) -> Metadata:
    """The object in a JSON file that may be absent: then it is empty."""
    return Metadata(str(path), read_json(path) if path.is_file() else {})
