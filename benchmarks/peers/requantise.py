"""A GGUF file with its matrices in another format of llama.cpp: what llama-quantize does, without importance data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

FORMATS = {
    "Q8_0": (Kind.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "Q4_0": (Kind.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}


def requantise(source: Path, target: Path, name: str) -> Path:
    """Write `target` unless it is there: `source` with every matrix in format `name`, vectors and metadata as they are.

    The file appears whole or not at all.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    kind, file_type = FORMATS[name]
    reader = GGUFReader(source)
    partial = target.with_suffix(f".{os.getpid()}")
    writer = GGUFWriter(partial, str(reader.fields["general.architecture"].contents()))
    _copy_metadata(reader, writer, int(file_type))
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if len(tensor.shape) > 1:
            writer.add_tensor(tensor.name, quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)
    return target


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    written_by_writer = {"general.architecture", "general.file_type"}
    for name, field in reader.fields.items():
        if name in written_by_writer or name.startswith("GGUF."):
            continue
        inner = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(file_type)
