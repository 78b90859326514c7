"""A writer of JPEGs from coefficients, in any scan script; and what the native module makes of one.

Encoders write few of the files that the standard (T.81) allows: here every band and every bit of
precision may be a scan of its own, codes may be long, and segments may have markers inside.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests import making
from wallclock.native import _native

_MOST_EOB_RUN = 32767
_SYMBOLS = (tuple(range(12)), tuple(run << 4 | size for run in range(16) for size in range(11)))


@dataclass(frozen=True)
class Component:
    across: int
    down: int
    coefficients: np.ndarray  # (rows, columns, 64) of whole MCUs, in zigzag order
    quant: np.ndarray  # 64, in zigzag order


@dataclass(frozen=True)
class Scan:
    """Which components; Ss, Se, Ah and Al."""

    components: tuple[int, ...]
    first: int = 0
    last: int = 63
    high: int = 0
    low: int = 0


@dataclass(frozen=True)
class Jpeg:
    width: int
    height: int
    components: tuple[Component, ...]
    scans: tuple[Scan, ...]
    progressive: bool = False
    restart_interval: int = 0
    short_codes: int = 0  # how many symbols have codes of 1, 2, … bits; the rest are longer
    before_scans: bytes = b""

    def encoded(self) -> bytes:
        sof = 0xC2 if self.progressive else 0xC1
        parts = [b"\xff\xd8"]
        frame = struct.pack(">BHHB", 8, self.height, self.width, len(self.components))
        for i, component in enumerate(self.components):
            wide = int(component.quant.max() > 255)
            values = component.quant.astype(">u2" if wide else "u1").tobytes()
            parts.append(making.segment(0xDB, bytes([wide << 4 | i]) + values))
            frame += bytes([i + 1, component.across << 4 | component.down, i])
        parts.append(making.segment(sof, frame))
        parts.append(making.segment(0xDD, struct.pack(">H", self.restart_interval)))
        for kind in (0, 1):
            parts.append(making.segment(0xC4, bytes([kind << 4]) + self._lengths(kind)))
        parts.append(self.before_scans)
        for scan in self.scans:
            parts.append(self._scan_header(scan) + _Entropy(self, scan).encoded())
        return b"".join(parts) + b"\xff\xd9"

    def _lengths(self, kind: int) -> bytes:
        symbols, short = _SYMBOLS[kind], self.short_codes
        counts = [1] * short + [0] * (16 - short)
        counts[short + (3, 7)[kind]] += len(symbols) - short
        return bytes(counts) + bytes(symbols)

    def code(self, kind: int, symbol: int) -> str:
        at, short = _SYMBOLS[kind].index(symbol), self.short_codes
        if at < short:
            return "1" * at + "0"
        return "1" * short + format(at - short, ("04b", "08b")[kind])

    def _scan_header(self, scan: Scan) -> bytes:
        ids = b"".join(bytes([i + 1, 0]) for i in scan.components)
        numbers = bytes([scan.first, scan.last, scan.high << 4 | scan.low])
        return making.segment(0xDA, bytes([len(scan.components)]) + ids + numbers)


def _extra(value: int) -> tuple[int, str]:
    size = abs(value).bit_length()
    bits = value if value > 0 else value + (1 << size) - 1
    return size, format(bits, f"0{size}b") if size else ""


@dataclass
class _Entropy:
    """The entropy-coded data of a scan (annexes F.1 and G.1)."""

    jpeg: Jpeg
    scan: Scan
    bits: list[str] = field(default_factory=list)
    dc: dict[int, int] = field(default_factory=dict)
    eob_run: int = 0
    corrections: str = ""  # of the blocks in the run

    def encoded(self) -> bytes:
        interval, data = self.jpeg.restart_interval, b""
        for number, mcu in enumerate(self._mcus()):
            if interval and number and number % interval == 0:
                data += self._flushed() + bytes([0xFF, 0xD0 + (number // interval - 1) % 8])
            for i, block in mcu:
                self._block(i, [int(value) for value in block])
        return data + self._flushed()

    def _mcus(self) -> Iterator[list[tuple[int, np.ndarray]]]:
        most_across = max(component.across for component in self.jpeg.components)
        most_down = max(component.down for component in self.jpeg.components)
        alone = len(self.scan.components) == 1
        first = self.jpeg.components[self.scan.components[0]]
        across, down = (first.across, first.down) if alone else (1, 1)
        columns = -(-self.jpeg.width * across // (8 * most_across))
        rows = -(-self.jpeg.height * down // (8 * most_down))
        for y in range(rows):
            for x in range(columns):
                yield [
                    (i, blocks[y * v + dy, x * h + dx])
                    for i in self.scan.components
                    for blocks in [self.jpeg.components[i].coefficients]
                    for h, v in [(1, 1) if alone else self._factors(i)]
                    for dy in range(v)
                    for dx in range(h)
                ]

    def _factors(self, i: int) -> tuple[int, int]:
        return self.jpeg.components[i].across, self.jpeg.components[i].down

    def _flushed(self) -> bytes:
        self._end_run()
        self.dc.clear()
        text = "".join(self.bits)
        self.bits.clear()
        text += "1" * (-len(text) % 8)
        data = int(text, 2).to_bytes(len(text) // 8, "big") if text else b""
        return data.replace(b"\xff", b"\xff\x00")

    def _put(self, kind: int, symbol: int, more: str = "") -> None:
        self.bits.append(self.jpeg.code(kind, symbol) + more)

    def _block(self, i: int, values: list[int]) -> None:
        scan = self.scan
        if scan.first == 0 and scan.high:
            self.bits.append(str(values[0] >> scan.low & 1))
        elif scan.first == 0:
            value = values[0] >> scan.low
            size, bits = _extra(value - self.dc.get(i, 0))
            self._put(0, size, bits)
            self.dc[i] = value
        if scan.last and scan.high:
            self._refine(values)
        elif scan.last:
            self._code_ac(values)

    def _code_ac(self, values: list[int]) -> None:
        run = 0
        for k in range(max(self.scan.first, 1), self.scan.last + 1):
            value = (abs(values[k]) >> self.scan.low) * (1 if values[k] > 0 else -1)
            if not value:
                run += 1
                continue
            self._end_run()
            while run > 15:
                self._put(1, 0xF0)
                run -= 16
            size, bits = _extra(value)
            self._put(1, run << 4 | size, bits)
            run = 0
        if run:
            self._end_block("")

    def _refine(self, values: list[int]) -> None:
        """G.1.2.3: of known coefficients one bit more each; new ones are 1 or -1."""
        known = [abs(value) >> self.scan.low for value in values]
        band = range(self.scan.first, self.scan.last + 1)
        last_new = max((k for k in band if known[k] == 1), default=0)
        run, corrections = 0, ""
        for k in band:
            if not known[k]:
                run += 1
                continue
            while run > 15 and k <= last_new:
                self._end_run()
                self._put(1, 0xF0, corrections)
                run, corrections = run - 16, ""
            if known[k] > 1:
                corrections += str(known[k] & 1)
                continue
            self._end_run()
            self._put(1, run << 4 | 1, str(int(values[k] > 0)) + corrections)
            run, corrections = 0, ""
        if run or corrections:
            self._end_block(corrections)

    def _end_block(self, corrections: str) -> None:
        if not self.jpeg.progressive:
            self._put(1, 0)
            return
        self.eob_run += 1
        self.corrections += corrections
        if self.eob_run == _MOST_EOB_RUN:
            self._end_run()

    def _end_run(self) -> None:
        if self.eob_run:
            size = self.eob_run.bit_length() - 1
            below = format(self.eob_run - (1 << size), f"0{size}b") if size else ""
            self._put(1, size << 4, below + self.corrections)
        self.eob_run, self.corrections = 0, ""


def decoded(
    data: bytes, denominator: int, window: tuple[int, int, int, int] | None = None
) -> np.ndarray | str:
    """What the native module makes of a file, (h, w, 3); or why it hands it over."""
    chunk = _native.open([data], len(data))
    status, _, _, width, height = chunk.headers[0][:5]
    if status:
        return _native.STATUSES[status]
    shape = -(-height // denominator), -(-width // denominator)
    if window is not None:
        shape = window[2:]
    row = np.empty((*shape, 3), np.uint8)
    plan = _native.Plan((height, width), shape, denominator=denominator, crop=window)
    (filled,) = chunk.fill([plan], [row])
    assert filled is not None
    return _native.STATUSES[filled[0]] if filled[0] else row
