"""From segments to subflows: what was said on each, in the order of the captures, before anything is verified."""

import dataclasses

from . import capture, flow, negotiation


@dataclasses.dataclass
class Said:
    """Something beside the bytes of a flow. `side` is 0 for the host that sent the SYN of the subflow."""

    time: int
    interface: str
    side: int
    kind: str
    value: object


class Subflow:
    """One TCP connection with the options of a sealed connection in its SYN."""

    def __init__(self, segment, number):
        self.number, self.ends = number, (segment.source, segment.destination)
        self.time, self.interface = segment.time, segment.interface
        self.flows = [flow.Flow(segment.seq), None]
        self.offers = [negotiation.offer_in(segment), None]
        self.join = [negotiation.mptcp_option(segment, 1), None, None]
        self.said = []
        # Known once the connection is: the side of the initiator in it, the name in the keys.
        self.initiator, self.name, self.connection = None, None, None

    def take(self, segment):
        side = 0 if segment.source == self.ends[0] else 1
        if segment.flags == 0:
            # A capture shows a datagram so.
            self.say(segment, side, "datagram", segment.payload)
            return
        if flow.is_syn(segment):
            self.take_syn(segment, side)
            return
        if self.flows[side] is None:
            return
        if segment.flags & capture.RST:
            self.say(segment, side, "reset", None)
        else:
            this = self.flows[side]
            offset = this.unwrap((segment.seq - this.isn) % (1 << 32))
            wrong = this.add(segment, offset)
            if wrong:
                self.say(segment, side, "wrong", wrong)
            if segment.flags & capture.FIN:
                self.say(segment, side, "fin", None)
        self.take_options(segment, side)

    def take_syn(self, segment, side):
        if side == 1 and self.flows[1] is None and segment.flags & capture.ACK:
            self.flows[1] = flow.Flow(segment.seq)
            self.offers[1] = negotiation.offer_in(segment)
            self.join[1] = negotiation.mptcp_option(segment, 1)
        if segment.payload:
            self.say(segment, side, "syn data", segment.payload)

    def take_options(self, segment, side):
        join = negotiation.mptcp_option(segment, 1)
        if join and len(join) == 24 and side == 0:
            self.join[2] = self.join[2] or join
            self.say(segment, side, "join ack", join[4:])
        close = negotiation.mptcp_option(segment, 7)
        if close and len(close) == 12:
            self.say(segment, side, "fast close", close[4:])
        tag = None
        for low, data in flow.experimental_in(segment):
            if low == 0 and len(data) == 9:
                tag = data
            elif low == 1 and len(data) == 6:
                offset = self.flows[side].unwrap(int.from_bytes(data[:4], "big"))
                known = self.flows[side].path_keys
                known.setdefault(offset, (segment.time, int.from_bytes(data[4:], "big")))
            elif low in (2, 3) and len(data) == 17:
                self.say(segment, side, "question" if low == 2 else "answer", data)
            elif low == 4 and len(data) == 19:
                self.say(segment, side, "report", data)
        self.take_dss(segment, side, tag)

    def take_dss(self, segment, side, tag):
        option = negotiation.mptcp_option(segment, 2)
        dss = flow.dss_in(option) if option else None
        if not dss:
            return
        if dss.mapping and not (dss.fin and dss.mapping[3] == 1):
            dsn, dsn_bytes, offset, length = dss.mapping
            offset, length = self.flows[side].unwrap(offset), length - dss.fin
            where = segment.time, segment.interface
            self.flows[side].map(flow.Mapping(*where, offset, dsn, dsn_bytes, length, dss.fin, dss.data_ack))
        else:
            fin = dss.mapping[:2] if dss.mapping else None
            self.say(segment, side, "data ack", (dss.data_ack, fin, tag))

    def say(self, segment, side, kind, value):
        self.said.append(Said(segment.time, segment.interface, side, kind, value))


def subflows_in(segments):
    """All subflows that can be of a sealed connection, in the order of their SYNs."""
    found, current = [], {}
    for segment in segments:
        pair = frozenset((segment.source, segment.destination))
        known = current.get(pair)
        if flow.is_syn(segment) and not segment.flags & capture.ACK:
            if known is None or known.flows[0].isn != segment.seq or known.ends[0] != segment.source:
                known = Subflow(segment, len(found))
                current[pair] = known
                if known.offers[0] or known.join[0]:
                    found.append(known)
        if known is not None:
            known.take(segment)
    return found
