"""Control records (section 4): what blocks of type 10 carry."""

import ipaddress

PADDING = 9
LIFE, REFUSED, LOOK, TICKET, DATAGRAMS, DATE = (1 << bit for bit in range(6))
CAPABILITIES = {LIFE: "LIFE", REFUSED: "REFUSED", LOOK: "LOOK", TICKET: "TICKET", DATAGRAMS: "DATAGRAMS", DATE: "DATE"}
REASONS = ("closed", "reset", "timed out", "nothing verified it", "interference", "displaced", "path is gone")
REFUSALS = ("other", "not authorized", "full", "draining", "expired", "too many of this client")


class RecordError(Exception):
    """The bytes are no records."""


class Fields:
    """Takes fields of fixed lengths from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if self.at + length > len(self.data):
            raise RecordError("the block ends within a record")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, length):
        return int.from_bytes(self.take(length), "big")

    def address(self):
        length = {4: 4, 6: 16}.get(self.number(1))
        if not length:
            raise RecordError("a family of addresses that does not exist")
        address = ipaddress.ip_address(self.take(length))
        return {"address": str(address), "port": self.number(2)}


def nothing(_):
    return {}


def exchange(fields):
    return {"subflow": fields.number(8), "number": fields.number(4)}


def gone(fields):
    subflow, reason = fields.number(8), fields.number(1)
    return {"subflow": subflow, "reason": REASONS[reason] if reason < len(REASONS) else reason}


def refused(fields):
    reason = fields.number(1)
    return {"reason": REFUSALS[reason] if reason < len(REFUSALS) else REFUSALS[0]}


def ticket(fields):
    length = fields.number(1)
    if not 1 <= length <= 192:
        raise RecordError("a ticket of a length that does not exist")
    return {"ticket": fields.take(length).hex()}


def prio(fields):
    subflow, backup = fields.number(8), fields.number(1)
    if backup > 1:
        raise RecordError("a flag that does not exist")
    return {"subflow": subflow, "backup": bool(backup)}


def seen(fields):
    return {"subflow": fields.number(8), **fields.address(), "mss": fields.number(2), "options": fields.number(1)}


def flow_of(fields):
    flow = fields.number(4)
    if flow >= 1 << 30:
        raise RecordError("a flow of more than 30 bits")
    return flow


def open_flow(fields):
    return {"flow": flow_of(fields), "destination": fields.take(fields.number(1)).decode("utf-8", "replace")}


def datagram(fields):
    flow, ecn = flow_of(fields), fields.number(1)
    if ecn > 3:
        raise RecordError("an ECN codepoint that does not exist")
    return {"flow": flow, "ecn": ecn, "bytes": len(fields.take(fields.number(2)))}


# Kind: name, reader, and the capability of the receiver that it needs.
RECORDS = {
    0x01: ("EOF", nothing, 0),
    0x02: ("KEY_UPDATE", nothing, 0),
    0x03: ("MIX", exchange, 0),
    0x04: ("MAX_DATA", lambda fields: {"limit": fields.number(8)}, 0),
    0x05: ("ADD_ADDR", lambda fields: {"id": fields.number(1), **fields.address()}, 0),
    0x06: ("REMOVE_ADDR", lambda fields: {"id": fields.number(1)}, 0),
    0x07: ("PRIO", prio, 0),
    0x08: ("TOKEN", lambda fields: {"token": fields.number(4)}, 0),
    0x0A: ("OPENING", lambda fields: {"id": fields.take(16).hex(), "paths": fields.number(1)}, 0),
    0x0B: ("OPENED", lambda fields: {"token": fields.number(4)}, 0),
    0x0C: ("REQUIRE", lambda fields: {"paths": fields.number(1)}, 0),
    0x0D: ("TICKET", ticket, TICKET),
    0x0E: ("LOOK", nothing, LOOK),
    0x0F: ("SEEN", seen, LOOK),
    0x10: ("GONE", gone, LIFE),
    0x11: ("VOID", exchange, LIFE),
    0x12: ("REFUSED", refused, REFUSED),
    0x14: ("AGREED", exchange, 0),
    0x15: ("OPEN_FLOW", open_flow, DATAGRAMS),
    0x16: ("CLOSE_FLOW", lambda fields: {"flow": flow_of(fields), "sent": fields.number(8)}, DATAGRAMS),
    0x17: ("DATAGRAM", datagram, DATAGRAMS),
    0x18: ("DATE", lambda fields: {"unix_time": fields.number(8)}, DATE),
}
# Nothing but padding may follow these in a block.
LAST = ("EOF", "KEY_UPDATE")


def parse(text, capabilities):
    """The records of a block as (name, fields), padding left out. `capabilities` are those of the receiver."""
    fields, found = Fields(text), []
    while fields.at < len(text):
        kind = fields.number(1)
        if kind == PADDING:
            continue
        if found and found[-1][0] in LAST:
            raise RecordError(f"a record behind {found[-1][0]}")
        if kind not in RECORDS:
            raise RecordError(f"record {kind:02x} does not exist")
        name, reader, needs = RECORDS[kind]
        if needs & ~capabilities:
            raise RecordError(f"{name} to a host that does not list {CAPABILITIES[needs]}")
        found.append((name, reader(fields)))
    return found
