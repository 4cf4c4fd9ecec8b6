"""One direction of one TCP connection: its bytes by their offsets, and which options say something about them."""

import dataclasses

from . import capture
from .negotiation import MPTCP

# Segments farther ahead than this are none of the flow.
WINDOW = 1 << 24


@dataclasses.dataclass
class Mapping:
    """A DSS mapping. `length` is that of its bytes, without a DATA_FIN; `whole` the moment when the last of them was seen."""

    time: int
    interface: str
    offset: int
    dsn: int
    dsn_bytes: int
    length: int
    fin: bool
    data_ack: tuple
    whole: int = None


class Flow:
    """Bytes behind the SYN have offsets from 1, in 64 bits."""

    def __init__(self, isn):
        self.isn, self.top = isn, 1
        self.data, self.spans = bytearray(), []
        # By offset: mappings that differ, and PATHKEYs as (time, length).
        self.mappings, self.path_keys, self.waiting = {}, {}, []

    def unwrap(self, low):
        """The 64-bit offset with these lower 32 bits that is nearest to the bytes that were seen last."""
        return self.top + ((low - self.top + (1 << 31)) % (1 << 32) - (1 << 31))

    def span(self, start, end):
        """Whether all of these bytes were seen."""
        return any(first <= start and end <= last for first, last in self.spans)

    def bytes(self, start, length):
        return bytes(self.data[start - 1 : start - 1 + length])

    def add(self, segment, offset):
        """Takes the bytes of a segment. Returns what is wrong with them, if anything."""
        payload, end = segment.payload, offset + len(segment.payload)
        if offset < 1 or not payload:
            return None
        if end > self.top + WINDOW:
            return "bytes far beyond the window"
        self.data.extend(bytes(max(0, end - 1 - len(self.data))))
        wrong = None
        for first, last in self.spans:
            low, high = max(first, offset), min(last, end)
            if low < high and self.data[low - 1 : high - 1] != payload[low - offset : high - offset]:
                wrong = f"bytes at offset {low} that differ from those that were sent there before"
        if wrong is None:
            self.data[offset - 1 : end - 1] = payload
            self.spans = merged(self.spans, (offset, end))
        self.top = max(self.top, end)
        for mapping in [each for each in self.waiting if self.span(each.offset, each.offset + each.length)]:
            mapping.whole = segment.time
            self.waiting.remove(mapping)
        return wrong

    def map(self, mapping):
        """Takes a mapping, once however often it is said."""
        known = self.mappings.setdefault(mapping.offset, [])
        what = (mapping.dsn, mapping.length, mapping.fin, mapping.data_ack)
        if what in [(each.dsn, each.length, each.fin, each.data_ack) for each in known]:
            return
        known.append(mapping)
        if self.span(mapping.offset, mapping.offset + mapping.length):
            mapping.whole = mapping.time
        else:
            self.waiting.append(mapping)

    def begin(self):
        """Where the first mapping, or the first PATHKEY, begins: what lies before it is the handshake."""
        return min([*self.mappings, *self.path_keys], default=None)

    def uncovered(self, begin):
        """Bytes from here on that nothing speaks of, as (start, end)."""
        covered = []
        for offset, known in self.mappings.items():
            covered = merged(covered, (offset, offset + max(each.length for each in known)))
        for offset, (_, length) in self.path_keys.items():
            covered = merged(covered, (offset, offset + length))
        gaps = []
        for first, last in self.spans:
            first = max(first, begin)
            for low, high in covered:
                if low <= first < high:
                    first = high
                elif first < low < last:
                    gaps.append((first, low))
                    first = high
            if first < last:
                gaps.append((first, last))
        return gaps


def merged(spans, new):
    """Disjoint spans in order, with one more."""
    start, end = new
    # Most bytes come at the end.
    if spans and spans[-1][0] <= start <= spans[-1][1]:
        return [*spans[:-1], (spans[-1][0], max(end, spans[-1][1]))]
    out = []
    for first, last in spans:
        if last < start or end < first:
            out.append((first, last))
        else:
            start, end = min(start, first), max(end, last)
    return sorted([*out, (start, end)])


@dataclasses.dataclass
class Dss:
    data_ack: tuple
    mapping: tuple
    fin: bool


def dss_in(option):
    """RFC 8684, section 3.3: the acknowledgment as (value, bytes), the mapping as (DSN, bytes of it, offset, length)."""
    flags, at = option[3], 4

    def take(length):
        nonlocal at
        at += length
        return int.from_bytes(option[at - length : at], "big")

    data_ack = mapping = None
    if flags & 1:
        length = 8 if flags & 2 else 4
        data_ack = take(length), length
    if flags & 4:
        length = 8 if flags & 8 else 4
        mapping = take(length), length, take(4), take(2)
    if at > len(option):
        return None
    return Dss(data_ack, mapping, bool(flags & 16))


def experimental_in(segment):
    """Options of subtype 15: (low four bits, what follows)."""
    found = (o for o in segment.options if o[0] == MPTCP and len(o) > 2 and o[2] >> 4 == 15)
    return [(option[2] & 15, option[3:]) for option in found]


def is_syn(segment):
    return bool(segment.flags & capture.SYN)
