"""Writes a GGUF file again with every Q4_1 tensor in Q4_0; the others and the metadata stay.

usage: python -m tests.bench.requantize SOURCE TARGET        (needs the package gguf)
"""

from __future__ import annotations

import sys
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

OLD, NEW = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q4_0
FILE_TYPE, ARCHITECTURE = "general.file_type", "general.architecture"


def requantize(source: Path, target: Path) -> None:
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields[ARCHITECTURE].contents())  # writes ARCHITECTURE
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == ARCHITECTURE:
            continue
        is_array = field.types[0] is GGUFValueType.ARRAY
        writer.add_key_value(
            field.name,
            LlamaFileType.MOSTLY_Q4_0 if field.name == FILE_TYPE else field.contents(),
            field.types[0],
            sub_type=field.types[-1] if is_array else None,
        )
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind is OLD:
            data, kind = quants.quantize(quants.dequantize(data, OLD), NEW), NEW
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    requantize(Path(sys.argv[1]), Path(sys.argv[2]))
