"""Hardware cards: what a device can do at best, and how much of it real kernels reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.errors import BadSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection: `bandwidth` in bytes per second, and the seconds before the first byte arrives."""

    bandwidth: float
    latency_s: float

    def seconds(self, num_bytes: float) -> float:
        """Time of one transfer."""
        return self.latency_s + num_bytes / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What kernels reach of the peaks (COSTMODEL §2, fitted to profiles where these are public).

    Linear layers round their tokens up to `tile`; memory and arithmetic overlap as a p-norm of power `norm`.
    """

    tile: int = 64
    memory: float = 0.85
    compute: float = 0.72
    norm: float = 2.0
    elementwise: float = 1.9
    decode_attention: float = 0.62
    prefill_attention: float = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCard:
    """One device. `flops` dense at 16 bits, `bandwidth` and `memory` in bytes; `memory` is what a driver reports."""

    name: str
    flops: float
    bandwidth: float
    memory: float
    host: Link
    peer: Link
    efficiency: Efficiency = Efficiency()


_PCIE4 = Link(bandwidth=25e9, latency_s=10e-6)
_PCIE5 = Link(bandwidth=50e9, latency_s=10e-6)
_NVLINK3 = Link(bandwidth=170e9, latency_s=35e-6)  # what an all-reduce reaches, not the sum of all lanes
_NVLINK4 = Link(bandwidth=280e9, latency_s=25e-6)
_OVER_PCIE = Link(bandwidth=16e9, latency_s=20e-6)
_OVER_PCIE5 = Link(bandwidth=40e9, latency_s=10e-6)  # all-reduces of devices that may read each other's memory

_CARDS = (
    HardwareCard(
        name="A100-40",
        flops=312e12,
        bandwidth=1.555e12,
        memory=42.3e9,
        host=_PCIE4,
        peer=_NVLINK3,
        efficiency=Efficiency(tile=64, memory=0.88, compute=0.72, norm=2.0, elementwise=1.9),
    ),
    HardwareCard(
        name="A100-80",
        flops=312e12,
        bandwidth=2.039e12,
        memory=85.0e9,
        host=_PCIE4,
        peer=_NVLINK3,
        efficiency=Efficiency(tile=64, memory=0.88, compute=0.72, norm=2.0, elementwise=1.9),
    ),
    HardwareCard(
        name="H100",
        flops=989e12,
        bandwidth=3.35e12,
        memory=85.0e9,
        host=_PCIE5,
        peer=_NVLINK4,
        efficiency=Efficiency(tile=128, memory=0.88, compute=0.72, norm=3.0, elementwise=1.8),
    ),
    HardwareCard(
        name="H200",
        flops=989e12,
        bandwidth=4.8e12,
        memory=150.0e9,
        host=_PCIE5,
        peer=_NVLINK4,
        efficiency=Efficiency(tile=128, memory=0.85, compute=0.72, norm=3.0, elementwise=1.8),
    ),
    HardwareCard(
        name="L4",
        flops=121e12,
        bandwidth=0.300e12,
        memory=23.6e9,
        host=_PCIE4,
        peer=_OVER_PCIE,
        efficiency=Efficiency(compute=0.6, memory=0.8, elementwise=1.2),
    ),
    HardwareCard(
        name="A10G",
        flops=70e12,
        bandwidth=0.600e12,
        memory=23.7e9,
        host=_PCIE4,
        peer=_OVER_PCIE,
        efficiency=Efficiency(memory=0.8, compute=0.74, elementwise=1.2),
    ),
    HardwareCard(
        name="A40",
        flops=150e12,
        bandwidth=0.696e12,
        memory=47.6e9,
        host=_PCIE4,
        peer=Link(bandwidth=40e9, latency_s=30e-6),
        efficiency=Efficiency(tile=64, memory=0.80, compute=0.76, norm=2.0, elementwise=1.2),
    ),
    HardwareCard(
        name="A6000",
        flops=155e12,
        bandwidth=0.768e12,
        memory=50.9e9,
        host=_PCIE4,
        peer=_OVER_PCIE,
        efficiency=Efficiency(tile=64, memory=0.80, compute=0.70, norm=2.0, elementwise=1.2),
    ),
    HardwareCard(
        name="RTX4090",
        flops=165e12,
        bandwidth=1.008e12,
        memory=25.25e9,
        host=_PCIE4,
        peer=_OVER_PCIE,
        efficiency=Efficiency(tile=64, memory=0.93, compute=0.95, norm=3.0, elementwise=1.1, decode_attention=0.9),
    ),
    HardwareCard(
        name="RTXPRO6000",
        flops=504e12,
        bandwidth=1.597e12,
        memory=102.0e9,
        host=_PCIE5,
        peer=_OVER_PCIE5,
        efficiency=Efficiency(tile=64, memory=0.85, compute=0.8, norm=3.0, elementwise=1.1, decode_attention=0.85),
    ),
    HardwareCard(  # two channels of memory and eight cores with AVX-512: `headway calibrate` knows better
        name="CPU",
        flops=1.0e12,
        bandwidth=0.040e12,
        memory=16e9,
        host=Link(bandwidth=10e9, latency_s=1e-6),
        peer=Link(bandwidth=10e9, latency_s=1e-6),
        efficiency=Efficiency(tile=1, memory=0.7, compute=0.5, norm=2.0, elementwise=1.0),
    ),
)

HARDWARE_CARDS: Mapping[str, HardwareCard] = {card.name: card for card in _CARDS}


def hardware_card(name: str) -> HardwareCard:
    """A card by name, whatever its case and dashes. Raises `BadSetting` naming the known ones."""
    wanted = _plain(name)
    for card in _CARDS:
        if _plain(card.name) == wanted:
            return card
    raise BadSetting(f"no hardware card {name!r}; known: {', '.join(HARDWARE_CARDS)}")


_ALIASES = {
    **dict.fromkeys(("a10040gb", "a100sxm440gb", "a100pcie40gb"), "a10040"),
    **dict.fromkeys(("a100", "a10080gb", "a100sxm480gb", "a10080gbpcie"), "a10080"),
    **dict.fromkeys(("h100sxm", "h100sxm5", "h10080gb", "h10080gbhbm3"), "h100"),
    **{f"rtxpro6000blackwell{kind}edition": "rtxpro6000" for kind in ("server", "workstation", "maxqworkstation")},
}
"""What drivers and clouds call the same devices, after `_plain`."""


def _plain(name: str) -> str:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    plain = plain.removeprefix("nvidia").removeprefix("geforce")
    return _ALIASES.get(plain, plain)
