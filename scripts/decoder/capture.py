"""Captures: pcapng and pcap, with raw IP, Ethernet or Linux cooked packets, down to segments of TCP."""

import dataclasses
import ipaddress
import struct

ETHERNET, RAW, SLL, SLL2, IPV4, IPV6 = 1, 101, 113, 276, 228, 229
# What precedes the IP packet, and where the type of Ethernet is in it.
LINK_HEADERS = {ETHERNET: (14, 12), SLL: (16, 14), SLL2: (20, 0)}
VLAN = (0x8100, 0x88A8)
TCP = 6
# IPv6: hop-by-hop options, routing, destination options.
EXTENSIONS = (0, 43, 60)
FIN, SYN, RST, ACK = 1, 2, 4, 16


class CaptureError(Exception):
    """The file is no capture, or ends within a block."""


@dataclasses.dataclass
class Segment:
    """A segment of TCP: time in nanoseconds, both ends as (address, port), options as raw bytes of each."""

    time: int
    interface: str
    source: tuple
    destination: tuple
    seq: int
    flags: int
    options: list
    payload: bytes


def read(path):
    """Yields the segments of TCP in a file."""
    with open(path, "rb") as file:
        data = file.read()
    magic = data[:4]
    if magic == b"\x0a\x0d\x0d\x0a":
        packets = read_pcapng(data)
    elif magic in (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d", b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        packets = read_pcap(data)
    else:
        raise CaptureError(f"{path} is neither pcapng nor pcap")
    for time, interface, link, packet in packets:
        segment = segment_in(time, interface, link, packet)
        if segment:
            yield segment


def read_pcap(data):
    order = ">" if data[0] == 0xA1 else "<"
    unit = 1 if 0x4D in (data[0], data[3]) else 1000
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    while at < len(data):
        if at + 16 > len(data):
            raise CaptureError("it ends within the header of a packet")
        seconds, fraction, length, _ = struct.unpack_from(order + "4I", data, at)
        if at + 16 + length > len(data):
            raise CaptureError("it ends within a packet")
        yield seconds * 10**9 + fraction * unit, "", link, data[at + 16 : at + 16 + length]
        at += 16 + length


def read_pcapng(data):
    at, order, interfaces = 0, "<", []
    while at < len(data):
        if at + 12 > len(data):
            raise CaptureError("it ends within the header of a block")
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order, interfaces = (">" if data[at + 8 : at + 12] == b"\x1a\x2b\x3c\x4d" else "<"), []
        kind, length = struct.unpack_from(order + "2I", data, at)
        body = data[at + 8 : at + length - 4]
        if length < 12 or at + length > len(data):
            raise CaptureError("it ends within a block")
        if kind == 1:
            interfaces.append(interface_of(order, body))
        elif kind == 6:
            number, high, low, captured = struct.unpack_from(order + "4I", body)
            name, link, resolution = interfaces[number]
            yield (high << 32 | low) * 10**9 // resolution, name, link, body[20 : 20 + captured]
        elif kind == 3:
            name, link, _ = interfaces[0]
            yield 0, name, link, body[4:]
        at += length


def interface_of(order, body):
    """Name, link type, and units of time in a second."""
    name, resolution, at = "", 10**6, 8
    while at + 4 <= len(body):
        code, length = struct.unpack_from(order + "2H", body, at)
        value = body[at + 4 : at + 4 + length]
        if code == 2:
            name = value.decode("utf-8", "replace")
        elif code == 9 and value:
            resolution = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        at += 4 + (length + 3) // 4 * 4
    return name, struct.unpack_from(order + "H", body)[0], resolution


def segment_in(time, interface, link, packet):
    """The segment in a packet; None if there is none, or only a fragment of one."""
    if link in LINK_HEADERS:
        length, at = LINK_HEADERS[link]
        while link == ETHERNET and int.from_bytes(packet[at : at + 2], "big") in VLAN:
            length, at = length + 4, at + 4
        packet = packet[length:]
    elif link not in (RAW, 12, 14, IPV4, IPV6):
        raise CaptureError(f"link type {link} is not known")
    if not packet:
        return None
    ip = of_ipv4(packet) if packet[0] >> 4 == 4 else of_ipv6(packet) if packet[0] >> 4 == 6 else None
    if not ip or len(ip[2]) < 20:
        return None
    source, destination, tcp = ip
    header = tcp[12] >> 4 << 2
    if not 20 <= header <= len(tcp):
        return None
    ports = struct.unpack_from(">2H", tcp)
    return Segment(
        time,
        interface,
        (str(source), ports[0]),
        (str(destination), ports[1]),
        int.from_bytes(tcp[4:8], "big"),
        tcp[13],
        options_in(tcp[20:header]),
        tcp[header:],
    )


def of_ipv4(packet):
    header, total, fragment, protocol = packet[0] << 2 & 60, *struct.unpack_from(">H2xHxB", packet, 2)
    if protocol != TCP or fragment & 0x3FFF:
        return None
    # A super-segment may say 0.
    tcp = packet[header : total or None]
    return ipaddress.ip_address(packet[12:16]), ipaddress.ip_address(packet[16:20]), tcp


def of_ipv6(packet):
    length, following = struct.unpack_from(">HB", packet, 4)
    at = 40
    while following in EXTENSIONS and at + 2 <= len(packet):
        following, at = packet[at], at + 8 + 8 * packet[at + 1]
    if following != TCP:
        return None
    tcp = packet[at : 40 + length if length else None]
    return ipaddress.ip_address(packet[8:24]), ipaddress.ip_address(packet[24:40]), tcp


def options_in(data):
    """Each option with its kind and length; a malformed one ends the list."""
    options, at = [], 0
    while at < len(data) and data[at] != 0:
        if data[at] == 1:
            at += 1
            continue
        length = data[at + 1] if at + 1 < len(data) else 0
        if length < 2 or at + length > len(data):
            break
        options.append(data[at : at + length])
        at += length
    return options
