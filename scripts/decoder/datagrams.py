"""Section 9: datagrams beside the stream, and the reports about them."""

import dataclasses
import struct

from cryptography.exceptions import InvalidTag

from . import keys, records

KIND, COOKIE = 0x04, bytes.fromhex("2112a442")
NUMBER, PIECE = 0x80, 0x40
TAG = 16


class DatagramError(Exception):
    """The bytes are no datagram."""


@dataclasses.dataclass
class Head:
    """What is in front of the cipher text. `counter` are 32 bits of it."""

    ecn: int
    generation: int
    counter: int
    flow: int
    number: int
    piece: tuple
    length: int


def flow_bytes(flow):
    for length, prefix in ((1, 0), (2, 1), (4, 2)):
        if flow < 1 << (8 * length - 2):
            return (flow | prefix << (8 * length - 2)).to_bytes(length, "big")
    raise DatagramError("a flow of more than 30 bits")


def head_bytes(ecn, generation, counter, flow, number=None, piece=None):
    flags = (NUMBER if number is not None else 0) | (PIECE if piece else 0)
    out = bytes([KIND | ecn, flags | generation & 0x3F]) + struct.pack(">I", counter & 0xFFFFFFFF) + flow_bytes(flow)
    out += b"" if number is None else struct.pack(">I", number)
    return out + (bytes([piece[0] << 4 | piece[1]]) if piece else b"")


def parse(data):
    if len(data) < 7 or data[0] >> 2 != KIND >> 2:
        raise DatagramError("a kind that does not exist")
    if data[4:8] == COOKIE:
        raise DatagramError("the cookie of STUN")
    length = {0: 1, 1: 2, 2: 4}.get(data[6] >> 6)
    if not length:
        raise DatagramError("a flow of eight bytes")
    at = 6 + length
    flow = int.from_bytes(data[6:at], "big") & (1 << (8 * length - 2)) - 1
    number = piece = None
    if data[1] & NUMBER:
        number, at = int.from_bytes(data[at : at + 4], "big"), at + 4
    if data[1] & PIECE and at < len(data):
        piece, at = (data[at] >> 4, data[at] & 15), at + 1
    counter = int.from_bytes(data[2:6], "big")
    if len(data) < at + TAG or head_bytes(data[0] & 3, data[1], counter, flow, number, piece) != data[:at]:
        raise DatagramError("it is cut short, or its header has another form")
    if piece and (number is None or not 2 <= piece[1] <= 4 or piece[0] >= piece[1]):
        raise DatagramError("a piece that does not exist")
    return Head(data[0] & 3, data[1] & 0x3F, counter, flow, number, piece, at)


def key_of(generation, suite, subflow):
    """Cipher and start of the nonces."""
    _, cipher, length = keys.SUITES[suite]
    both = keys.xl(generation.option, "dgram", struct.pack(">QH", subflow, suite), length + 12)
    return cipher(both[:length]), both[length:]


def nonce_of(iv, counter):
    return bytes(x ^ y for x, y in zip(iv, bytes(4) + struct.pack(">Q", counter)))


def seal(generation, suite, subflow, counter, payload, **fields):
    cipher, iv = key_of(generation, suite, subflow)
    head = head_bytes(generation=generation.number, counter=counter, **fields)
    return head + cipher.encrypt(nonce_of(iv, counter), payload, head)


def open_with(generation, suite, subflow, head, counter, data):
    """The payload; None if it does not verify."""
    cipher, iv = key_of(generation, suite, subflow)
    try:
        return cipher.decrypt(nonce_of(iv, counter), data[head.length :], data[: head.length])
    except InvalidTag:
        return None


def report_option(generation, subflow, following, count, delay):
    """`30, 22, F4, generation, next, count, delay, tag`."""
    tag = generation.tag(subflow, keys.tagged(4, 0, generation.bits, following, count, delay), 8)
    numbers = struct.pack(">IIH", following & 0xFFFFFFFF, count & 0xFFFFFFFF, delay)
    return bytes([30, 22, 0xF4, generation.bits]) + numbers + tag


class Counters:
    """The counters of one subflow and direction."""

    def __init__(self):
        self.following, self.seen = 0, set()

    def expand(self, low):
        near = self.following + ((low - self.following + (1 << 31)) % (1 << 32) - (1 << 31))
        return near if near >= 0 else low


def check(connection, subflow):
    """Verifies the datagrams of a subflow in the order of their times, and the reports about them."""
    counters = [Counters(), Counters()]
    for said in subflow.said:
        if said.kind == "datagram":
            check_datagram(connection, subflow, said, counters[said.side])
        elif said.kind == "report":
            check_report(connection, subflow, said, counters[1 - said.side])


def check_datagram(connection, subflow, said, counters):
    stream, _ = connection.both(subflow, said.side)
    place = said.time, said.interface, subflow, stream.way
    try:
        head = parse(said.value)
    except DatagramError as error:
        connection.report.fail(*place, f"a datagram is malformed: {error}")
        return
    counter = counters.expand(head.counter)
    payload = None
    for generation in stream.of_bits(head.generation) if subflow.name is not None else ():
        payload = open_with(generation, stream.suite, subflow.name, head, counter, said.value)
        if payload is not None:
            break
    if payload is None:
        connection.report.fail(*place, f"the datagram with counter {counter} does not verify")
        return
    counters.following = max(counters.following, counter + 1)
    if not stream.capabilities & records.DATAGRAMS:
        connection.report.fail(*place, "a datagram to a host that does not list DATAGRAMS")
    is_copy = counter in counters.seen
    counters.seen.add(counter)
    connection.counts["datagrams"] += not is_copy
    fields = {"flow": head.flow, "counter": counter, "bytes": len(payload), "ecn": head.ecn, "generation": head.generation}
    fields |= {} if head.number is None else {"number": head.number}
    fields |= {} if not head.piece else {"piece": list(head.piece)}
    connection.report.tell(*place, "datagram once more" if is_copy else "datagram", fields)


def check_report(connection, subflow, said, counters):
    stream, _ = connection.both(subflow, said.side)
    place = said.time, said.interface, subflow, stream.way
    bits, following, count, delay, tag = struct.unpack(">BIIH8s", said.value)
    # Datagrams that were lost before the capture count too: their counters are below.
    above = max(counters.following, following if following < 1 << 31 else 0)
    following, count = (above - ((above - low) % (1 << 32)) for low in (following, count))
    message = keys.tagged(4, 0, bits, following, count, delay) if count >= 0 else b""
    if count < 0 or not connection.verify(stream, bits, subflow.name, message, tag):
        connection.report.fail(*place, "the tag of a REPORT does not verify")
        return
    connection.counts["reports"] += 1
    fields = {"next": following, "count": count, "delay": delay / 10, "generation": bits}
    connection.report.tell(*place, "REPORT", fields)
