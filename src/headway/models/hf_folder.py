"""A Hugging Face folder: config.json, safetensors (one file or shards), tokenizer files; checked when it is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.models.config import ModelConfig
from headway.models.hf_config import read_config
from headway.models.hf_tokenizer import read_chat_template, read_tokenizer
from headway.models.json_file import read_json
from headway.models.layout import OUTSIDE, all_tensors, hugging_face_name
from headway.models.metadata import Metadata
from headway.models.safetensors_file import READABLE, SafetensorsFile
from headway.models.tokenizer_spec import TokenizerSpec

_INDEX, _WEIGHTS = "model.safetensors.index.json", "model.safetensors"


class HfFolder:
    """A model in a folder. `config`, `tokenizer_spec` and `chat_template` are ready after `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        meta = Metadata(str(path / "config.json"), read_json(path / "config.json"))
        # The config is read before the weights' names: what cannot be run is named as such, not by a tensor.
        name = path.resolve().name or "model"
        read_config(meta, name=name, quantisation="")
        self._files = [SafetensorsFile(file) for file in _weight_files(path)]
        self._where = {tensor: file for file in self._files for tensor in file.tensors}
        self.config: ModelConfig = read_config(meta, name=name, quantisation=_kinds(self._files))
        _check_tensors(path, self.config, self._where)
        self.tokenizer_spec: TokenizerSpec = read_tokenizer(path, meta, self.config.vocab_size)
        self.chat_template: str | None = read_chat_template(path)

    @classmethod
    def open(cls, path: Path) -> HfFolder:
        """Reads all that is not weights and maps those. Raises BadModelFile, saying what is wrong and where."""
        if not (path / "config.json").is_file():
            raise BadModelFile(f"{path} holds no config.json; a model is a .gguf file or a Hugging Face folder")
        return cls(path)

    def stored_name(self, name: str, layer: int = OUTSIDE) -> str:
        """What the checkpoint calls a tensor of `models.layout`."""
        return hugging_face_name(name, layer)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor by the checkpoint's name, as a new float32 array."""
        return self._where[name].tensor(name)


def _weight_files(path: Path) -> list[Path]:
    if not (path / _INDEX).is_file():
        if not (path / _WEIGHTS).is_file():
            raise BadModelFile(
                f"{path} holds neither {_WEIGHTS} nor {_INDEX}; other kinds of weights are not supported"
            )
        return [path / _WEIGHTS]
    shards = read_json(path / _INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise BadModelFile(f"{path / _INDEX} has no weight_map")
    names = {str(name) for name in shards.values()}
    if strange := [name for name in names if Path(name).name != name]:
        raise BadModelFile(f"{path / _INDEX} names the file {strange[0][:100]!r}, which is not in this folder")
    return [path / name for name in sorted(names)]


def _check_tensors(path: Path, config: ModelConfig, where: dict[str, SafetensorsFile]) -> None:
    expected = {hugging_face_name(*key): shape for key, shape in all_tensors(config).items()}
    for name, shape in expected.items():
        if (file := where.get(name)) is None:
            raise BadModelFile(f"{path}: tensor {name!r} is missing")
        place = file.tensors[name]
        if place.kind not in READABLE:
            raise BadModelFile(
                f"{file.path}: tensor {name!r} is stored as {place.kind[:20]}, which is not supported; "
                f"supported: {', '.join(READABLE)}"
            )
        if place.shape != shape:
            raise BadModelFile(f"{file.path}: tensor {name!r} has shape {place.shape}, config.json says {shape}")
    if unknown := [name for name in where if name not in expected and not _is_idle(name, config)]:
        raise BadModelFile(
            f"{path}: tensor {unknown[0][:100]!r} belongs to no supported {config.architecture} model; "
            "ignoring it would give wrong answers"
        )


def _is_idle(name: str, config: ModelConfig) -> bool:
    """Whether a tensor holds nothing of its own: angles that follow from the config, or a copy of a tied head."""
    return name.endswith(".rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tied_embeddings)


def _kinds(files: list[SafetensorsFile]) -> str:
    return ", ".join(sorted({place.kind for file in files for place in file.tensors.values()}))
