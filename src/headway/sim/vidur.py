"""Kernel profiles in the tables that the vidur simulator publishes: milliseconds per operator of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.errors import BadSetting
from headway.sim.curves import Curve, Grid
from headway.sim.profile import KernelProfile
from headway.sim.tables import read_header, read_rows

LINEAR = ("attn_pre_proj_ms", "attn_post_proj_ms", "mlp_up_proj_ms", "mlp_down_proj_ms")
ELEMENTWISE = ("input_layernorm_ms", "attn_rope_ms", "post_attention_layernorm_ms", "mlp_act_ms", "add_ms", "add_ms")
"""The residual is added twice."""


@dataclass(frozen=True, slots=True)
class _Apart:
    """Attention where prefills and decodes run one after the other: two surfaces, added up."""

    prefill: Grid
    decode: Grid

    def at(self, point: tuple[float, ...]) -> float:
        """Seconds for (chunk, KV before it, decodes, KV of each)."""
        chunk, before, num, each = point
        return (self.prefill.at((chunk, before)) if chunk else 0.0) + (self.decode.at((num, each)) if num else 0.0)


def read_vidur(prefix: str, tensor: int) -> KernelProfile:
    """Read `PREFIX_mlp.csv` and `PREFIX_attention.csv`, or both without the prefix in a folder, for one degree.

    Columns may be named as vidur's profiler does (`time_stats.NAME.median`, `num_tensor_parallel_workers`) or in short
    (`NAME_ms`, `tp`); a table of attention without degrees is for any. These profiles leave out the output head and
    the sampler, and so do the times. Raises `BadSetting` for a missing file, column or degree, or a broken row.
    """
    start = f"{prefix}/" if Path(prefix).is_dir() else f"{prefix}_"
    products = Path(f"{start}mlp.csv")
    layer = read_layer(products, tensor, (*LINEAR, *ELEMENTWISE))
    once = read_layer(products, tensor, ("emb_ms",))
    prefill, decode = _read_attention(Path(f"{start}attention.csv"), tensor)
    return KernelProfile(
        layer=Curve(layer), once=Curve(once), attention=_Apart(Grid(prefill), Grid(decode)), drawn=Curve({1: 0.0})
    )


def read_layer(path: Path, tensor: int, operators: tuple[str, ...]) -> dict[int, float]:
    """Seconds of some operators of one layer together, by number of tokens; of equal rows the mean."""
    sums: dict[int, list[float]] = {}
    columns = _as_spelled(path, ("tp", "num_tokens", *operators))
    for row in read_rows(path, columns, whole=columns[:2], blank=columns[2:]):
        if int(row[0]) == tensor:
            sums.setdefault(int(row[1]), []).append(1e-3 * sum(float(cell or 0) for cell in row[2:]))
    if not sums:
        raise BadSetting(f"{path} has no rows for tensor parallelism {tensor}")
    return {count: sum(values) / len(values) for count, values in sums.items()}


def _read_attention(path: Path, tensor: int) -> tuple[dict[tuple[int, ...], float], dict[tuple[int, ...], float]]:
    """Seconds of prefills by (chunk, KV before it), and of decodes by (number, KV of each)."""
    prefill: dict[tuple[int, ...], float] = {}
    decode: dict[tuple[int, ...], float] = {}
    columns = ("is_prefill", "batch_size", "prefill_chunk_size", "kv_cache_size", "attn_prefill_ms", "attn_decode_ms")
    spelled = _as_spelled(path, columns)
    degree = [name for name in ("tp", _LONG["tp"]) if name in read_header(path)][:1]
    for kind, num, chunk, context, prefill_ms, decode_ms, *of in read_rows(
        path, (*spelled, *degree), words=spelled[:1], whole=(*spelled[1:4], *degree), blank=spelled[4:]
    ):
        if of and int(of[0]) != tensor:
            continue
        if kind == "True":
            prefill[int(chunk), int(context)] = float(prefill_ms or 0) * 1e-3
        else:
            decode[int(num), int(context)] = float(decode_ms or 0) * 1e-3
    if not prefill or not decode:
        raise BadSetting(f"{path} needs rows of prefills and of decodes for tensor parallelism {tensor}")
    return prefill, decode


_LONG = {"tp": "num_tensor_parallel_workers"}


def _as_spelled(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Each column as this file has it: in short, or as vidur's profiler writes it."""
    header = read_header(path)
    long = {name: _LONG.get(name, f"time_stats.{name.removesuffix('_ms')}.median") for name in columns}
    return tuple(long[name] if name not in header and long[name] in header else name for name in columns)
