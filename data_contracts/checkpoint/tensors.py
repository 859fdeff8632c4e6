"""Tensors of a checkpoint through the safetensors headers: no torch, no copy.

The digest is of content: sorted names, dtype, shape and bytes. Sharding and file metadata do not change it.
Format: 8 bytes little-endian header length, a JSON header, then the data
(https://huggingface.co/docs/safetensors).
"""

import hashlib
import json
import mmap
import struct
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from data_contracts.checkpoint.files import breach, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 100_000_000  # the format's own limit, in bytes
BLOCK = 1 << 24  # elements looked at together


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: bytes [start, end) of `file`. `dtype` as safetensors spells it (F32, BF16...)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def tensors(folder: Path) -> list[Tensor]:
    """All tensors, sorted by name.

    Raises ContractBreach for a missing, torn or unreadable file, and for a name that two shards hold.
    """
    found: dict[str, Tensor] = {}
    for file in _files(folder):
        for tensor in _header(file):
            if tensor.name in found:
                raise breach("each tensor in one file", f"{tensor.name} is also in {file.name}", tensor.name)
            found[tensor.name] = tensor
    if (folder / INDEX).exists() and (missing := set(read_json(folder / INDEX)["weight_map"]) - set(found)):
        raise breach("every tensor of the index present", f"missing {sorted(missing)[:3]}", INDEX)
    return [found[name] for name in sorted(found)]


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        weight_map = read_json(folder / INDEX).get("weight_map", {})
        return [folder / name for name in sorted(set(weight_map.values()))]
    return [folder / SINGLE]


def _header(file: Path) -> list[Tensor]:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > min(LONGEST_HEADER, size - 8):
                raise ValueError("the header is longer than the file")
            header = json.loads(opened.read(length))
    except FileNotFoundError as error:
        raise breach(f"{file.name} present", f"{file.parent} has none", file.name) from error
    except (ValueError, struct.error) as error:
        raise breach("a safetensors file", f"{file}: {error}", file.name) from error
    header.pop("__metadata__", None)
    data = 8 + length
    found = [
        Tensor(
            name,
            entry["dtype"],
            tuple(entry["shape"]),
            file,
            data + entry["data_offsets"][0],
            data + entry["data_offsets"][1],
        )
        for name, entry in header.items()
    ]
    if max((tensor.end for tensor in found), default=data) != size:
        raise breach("a whole safetensors file", f"{file} ends early or late", file.name)
    return found


def tensor_digest(folder: Path) -> str:
    """`sha256:...` of all tensors' names, dtypes, shapes and bytes. Raises as `tensors`."""
    digest = hashlib.sha256(b"posttrain tensors 1")
    for tensor in tensors(folder):
        digest.update(json.dumps([tensor.name, tensor.dtype, list(tensor.shape)]).encode())
        with tensor.file.open("rb") as opened:
            opened.seek(tensor.start)
            left = tensor.end - tensor.start
            while left:
                block = opened.read(min(left, 1 << 22))
                if not block:
                    raise breach("a whole safetensors file", f"{tensor.file} ends early", tensor.file.name)
                digest.update(block)
                left -= len(block)
    return f"sha256:{digest.hexdigest()}"


# dtype -> (unsigned view, mask of the exponent): all exponent bits set means infinity or NaN
_EXPONENTS: dict[str, tuple[np.dtype[Any], int]] = {
    "BF16": (np.dtype("<u2"), 0x7F80),
    "F16": (np.dtype("<u2"), 0x7C00),
    "F32": (np.dtype("<u4"), 0x7F80_0000),
    "F64": (np.dtype("<u8"), 0x7FF0_0000_0000_0000),
}


def tensors_not_finite(folder: Path) -> list[str]:
    """Names of tensors with a NaN or an infinity."""
    found = []
    for file, held in groupby(sorted(tensors(folder), key=lambda tensor: tensor.file), lambda t: t.file):
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for tensor in held:
                if tensor.dtype in _EXPONENTS and _any_not_finite(mapped, tensor):
                    found.append(tensor.name)
    return sorted(found)


def _any_not_finite(mapped: mmap.mmap, tensor: Tensor) -> bool:
    view, mask = _EXPONENTS[tensor.dtype]
    for first in range(0, tensor.elements, BLOCK):
        count = min(BLOCK, tensor.elements - first)
        bits = np.frombuffer(mapped, view, count, tensor.start + first * view.itemsize).copy()
        if bool(((bits & mask) == mask).any()):
            return True
    return False
