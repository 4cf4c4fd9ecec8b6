"""One sealed connection: its subflows, both directions, shares of the keys, and everything that is said beside the stream."""

import struct

from . import datagrams, keys, negotiation, records
from .stream import OVERHEAD, Body, Stream

SIDES = "ab"


class Connection:
    """An attempt to open a connection, and what has joined it."""

    def __init__(self, number, first, log, report):
        self.number, self.first, self.log, self.report = number, first, log, report
        self.subflows, self.agreed, self.streams = [first], None, {}
        self.exchanges, self.mixes, self.offers = {}, {}, {}
        self.tags = {}
        self.counts = dict.fromkeys(("transmissions", "acks", "questions", "answers", "shares", "joins", "syn_data", "datagrams", "reports"), 0)
        first.initiator, first.name, first.connection = "a", 0, self

    def agree(self):
        """The keys, if the handshake was completed; whether there is more to do."""
        first, begins = self.first, [flow and flow.begin() for flow in self.first.flows]
        if None in begins or None in first.offers:
            self.tell(first, "ab", "attempt", {"completed": False})
            return False
        said = [flow.bytes(1, begin - 1) for flow, begin in zip(first.flows, begins)]
        try:
            self.agreed = agreed = negotiation.agree(first.offers, said, self.log)
        except negotiation.NegotiationError as error:
            self.fail(first.time, first, "ab", f"handshake: {error}")
            return False
        capabilities = [each.capabilities for each in agreed.prologues]
        for way, receiver in (("ab", 1), ("ba", 0)):
            of = capabilities[receiver]
            self.streams[way] = Stream(way, agreed.ms, agreed.suite, self.report, self.mixes, of)
        self.tokens = {side: int.from_bytes(keys.xl(agreed.ms, "token " + side, b"", 4), "big") for side in SIDES}
        self.session_id = bytes([agreed.tep]) + keys.xl(agreed.ms, "sid")
        handshake, suite = negotiation.TEPS[agreed.tep], keys.SUITES[agreed.suite][0]
        names = [[name for bit, name in records.CAPABILITIES.items() if bit & each] for each in capabilities]
        fields = {"handshake": handshake, "suite": suite, "bytes": [len(each) for each in said]}
        fields |= {"capabilities": names, "instance": agreed.prologues[1].instance.hex()}
        fields["confirmation"] = agreed.confirmation.hex()
        self.tell(first, "ab", "handshake", fields)
        self.gather(first)
        return True

    def way(self, subflow, side):
        """The direction in which this side of a subflow sends."""
        return "ab" if (subflow.initiator == "a") == (side == 0) else "ba"

    def knows(self, token):
        """The side that a join with this token is for."""
        named = [(side, self.tokens[side]) for side in SIDES]
        for side, way in (("a", "ab"), ("b", "ba")):
            named += [(side, f["token"]) for name, f in self.streams[way].records if name == "TOKEN"]
        return next((side for side, its in named if its == token), None)

    def gather(self, subflow):
        """Takes the blocks of all mappings of a subflow, and of its SYNs."""
        for side, flow in enumerate(subflow.flows):
            stream = self.streams[self.way(subflow, side)]
            for mapping in self.whole(flow):
                data = flow.bytes(mapping.offset, mapping.length)
                where = mapping.whole, mapping.interface, subflow
                body = Body(*where, data[0], data[1:-16], mapping.fin)
                stream.add(stream.relative(mapping.dsn, mapping.dsn_bytes), body)
        for said, _, blocks in self.syn_data(subflow):
            stream = self.streams[self.way(subflow, said.side)]
            for dsn, data in blocks:
                body = Body(said.time, said.interface, subflow, data[0], data[1:-16], False)
                stream.add(stream.relative(dsn, 8), body)

    @staticmethod
    def whole(flow):
        """Mappings of which all bytes were captured. One that is shorter than a block is reported by `check_mappings`."""
        known = (mapping for at in (flow.mappings.values() if flow else ()) for mapping in at)
        return [mapping for mapping in known if mapping.whole is not None and mapping.length >= OVERHEAD]

    @staticmethod
    def syn_data(subflow):
        """What SYNs carried: (said, Data-ACK, [(DSN, block)])."""
        for said in subflow.said:
            if said.kind != "syn data" or len(said.value) < 8 or not subflow.join[0]:
                continue
            data_ack, rest, blocks = int.from_bytes(said.value[:8], "big"), said.value[8:], []
            while len(rest) >= 10:
                dsn, length = struct.unpack_from(">QH", rest)
                if length < OVERHEAD or length > len(rest) - 10:
                    break
                blocks.append((dsn, rest[10 : 10 + length]))
                rest = rest[10 + length :]
            yield said, data_ack, blocks

    def advance(self):
        """Whatever follows from what is known by now; returns whether that was something."""
        progress = [self.join(subflow) for subflow in self.subflows if subflow.name is None]
        progress += [self.open_share(subflow, side) for subflow in self.subflows for side in (0, 1)]
        progress += [stream.advance() for stream in self.streams.values()]
        return any(progress)

    def join(self, subflow):
        """Verifies both HMACs of a join under the same generation, and names the subflow."""
        syn, answer, last = subflow.join
        if not answer or len(syn) != 12 or len(answer) != 16:
            return False
        body = syn[8:12] + answer[12:16] + bytes([syn[2] & 15, syn[3], answer[2] & 15, answer[3]]) + syn[4:8]
        for generation in reversed(self.streams["ab"].generations):
            hmac_a, hmac_b = keys.join_hmacs(generation.joins, subflow.initiator, body)
            if hmac_b == answer[4:12] and last in (None, last and last[:4] + hmac_a):
                subflow.name = keys.subflow_id(hmac_a, hmac_b)
                fields = {"name": subflow.name, "generation": generation.number, "address ids": [syn[3], answer[3]]}
                self.tell(subflow, self.way(subflow, 0), "join", fields | {"proved": last is not None})
                self.counts["joins"] += last is not None
                self.gather(subflow)
                return True
        return False

    def open_share(self, subflow, side):
        """Opens the PATHKEYs of one flow that were not opened before."""
        flow, opened = subflow.flows[side], False
        for offset, (time, length) in flow.path_keys.items() if flow and subflow.name is not None else ():
            key = subflow.number, side, offset
            if key in self.offers or not flow.span(offset, offset + length) or length < 22:
                continue
            message = flow.bytes(offset, length)
            kind, bits, number = struct.unpack_from(">BBI", message)
            name = subflow.name, number
            offered = b""
            if kind == 2:
                if name not in self.exchanges:
                    continue
                offered = self.exchanges[name][0]
            for generation in self.streams[self.way(subflow, side)].of_bits(bits):
                text = keys.open_path_key(generation, subflow.name, kind, number, offered, message)
                if text is not None and len(text) == {1: 1249, 2: 1153}.get(kind):
                    self.offers[key] = opened = True
                    self.take_share((time, subflow, side), kind, name, message[6:22], text, generation)
        return opened

    def take_share(self, place, kind, name, fresh, text, generation):
        (time, subflow, side), (_, number) = place, name
        way = self.way(subflow, side)
        fields = {"number": number, "generation": generation.number, "path": text[0]}
        self.report.tell(time, subflow.interface, subflow, way, "share offered" if kind == 1 else "share answered", fields)
        if way == "ba" and text[0]:
            self.fail(time, subflow, way, "B numbers a path")
        if kind == 1:
            if name in self.exchanges:
                self.fail(time, subflow, way, f"exchange {number} is offered twice")
            self.exchanges[name] = fresh, text
            return
        agreed = self.log.shares.get((self.session_id, struct.pack(">QI", *name)))
        if agreed is None:
            self.fail(time, subflow, way, f"exchange {number} is not in the key log")
            return
        self.counts["shares"] += 1
        self.mixes[name] = keys.mix_of(*name, *agreed, self.exchanges[name][1], text)

    def finish(self):
        """When nothing follows any more: what is missing, and everything beside the stream."""
        for subflow in self.subflows:
            self.check_mappings(subflow)
            self.check_syn_data(subflow)
            self.check_path_keys(subflow)
            self.check_said(subflow)
            datagrams.check(self, subflow)
        for stream in self.streams.values():
            for relative in sorted(set(stream.blocks) - stream.visited):
                stream.fail(stream.blocks[relative][0], f"block {relative} begins where no block does")

    def check_mappings(self, subflow):
        for side, flow in enumerate(subflow.flows):
            way = self.way(subflow, side)
            if not flow:
                continue
            for mapping in sum(flow.mappings.values(), []):
                if mapping.length < OVERHEAD:
                    self.fail(mapping.time, subflow, way, f"a mapping of {mapping.length} bytes is shorter than a block")
            for mapping in self.whole(flow):
                self.check_transmission(subflow, side, mapping, flow.bytes(mapping.offset, mapping.length))
            begin = 1 if subflow is not self.first else flow.begin() or len(flow.data) + 1
            for low, high in flow.uncovered(begin):
                self.fail(subflow.time, subflow, way, f"no mapping covers the bytes from {low} to {high - 1}")

    def check_transmission(self, subflow, side, mapping, block):
        stream, back = self.both(subflow, side)
        flags = keys.MAPPING | (keys.DATA_FIN if mapping.fin else 0) | (keys.DATA_ACK if mapping.data_ack else 0)
        data_ack = back.absolute(back.relative(*mapping.data_ack)) if mapping.data_ack else 0
        dsn = stream.absolute(stream.relative(mapping.dsn, mapping.dsn_bytes))
        length = mapping.length + mapping.fin
        message = keys.tagged(0, flags, block[0], dsn, mapping.offset, length, data_ack, block[-32:-16])
        where = f"the block with DSN {stream.relative(mapping.dsn, mapping.dsn_bytes)} at offset {mapping.offset}"
        if self.verify(stream, block[0], subflow.name, message, block[-16:]):
            self.counts["transmissions"] += 1
        else:
            self.fail(mapping.whole, subflow, stream.way, f"the option tag of {where} does not verify")
        if mapping.data_ack:
            self.check_data_ack(mapping.whole, subflow, stream.way, back, mapping.data_ack)

    def check_syn_data(self, subflow):
        for said, data_ack, blocks in self.syn_data(subflow):
            stream = self.streams[self.way(subflow, said.side)]
            syn, name = subflow.join[0], subflow.name
            if said.side == 0:
                name = keys.syn_name(syn[2], syn[3], int.from_bytes(syn[8:12], "big"))
            for dsn, block in blocks:
                flags = keys.MAPPING | keys.DATA_ACK
                message = keys.tagged(0, flags, block[0], dsn, 0, len(block), data_ack, block[-32:-16])
                fields = {"dsn": stream.relative(dsn, 8), "bytes": len(block) - OVERHEAD}
                if self.verify(stream, block[0], name, message, block[-16:]):
                    self.counts["syn_data"] += 1
                    self.report.tell(said.time, said.interface, subflow, stream.way, "block in a SYN", fields)
                else:
                    self.fail(said.time, subflow, stream.way, f"the block in a SYN with DSN {fields['dsn']} does not verify")

    def check_path_keys(self, subflow):
        for side, flow in enumerate(subflow.flows):
            for offset, (time, length) in flow.path_keys.items() if flow else ():
                if flow.span(offset, offset + length) and (subflow.number, side, offset) not in self.offers:
                    self.fail(time, subflow, self.way(subflow, side), f"the PATHKEY at offset {offset} does not verify")

    def check_said(self, subflow):
        asked = {(said.side, said.value[1:9]) for said in subflow.said if said.kind == "question"}
        for said in subflow.said:
            stream, back = self.both(subflow, said.side)
            place = said.time, said.interface, subflow, stream.way
            if said.kind == "data ack":
                self.check_ack(said, subflow, stream, back)
            elif said.kind in ("question", "answer"):
                self.check_check(said, subflow, stream, asked)
            elif said.kind == "fast close":
                if said.value in [each.fast_close for each in stream.generations]:
                    self.report.tell(*place, "MP_FASTCLOSE", {})
                else:
                    self.report.fail(*place, "the key of MP_FASTCLOSE is none of its sender's")
            elif said.kind == "wrong":
                self.report.fail(*place, said.value)
            elif said.kind == "join ack":
                if subflow.name is not None and said.value != subflow.join[2][4:]:
                    self.report.fail(*place, "another HMAC in the third segment of a join")
            elif said.kind in ("reset", "fin"):
                self.report.tell(*place, "RST" if said.kind == "reset" else "FIN", {})
        if subflow.name is None and subflow.join[1] is not None:
            self.fail(subflow.time, subflow, self.way(subflow, 0), "the HMACs of this join do not verify")

    def check_ack(self, said, subflow, stream, back):
        data_ack, fin, tag = said.value
        if tag is None:
            if fin:
                self.fail(said.time, subflow, stream.way, "a DATA_FIN without a tag")
            return
        flags = (keys.DATA_ACK if data_ack else 0) | (keys.MAPPING | keys.DATA_FIN if fin else 0)
        ack = back.absolute(back.relative(*data_ack)) if data_ack else 0
        dsn = stream.absolute(stream.relative(*fin)) if fin else 0
        message = keys.tagged(1, flags, tag[0], dsn, 0, 1 if fin else 0, ack)
        if not self.verify(stream, tag[0], subflow.name, message, tag[1:]):
            self.fail(said.time, subflow, stream.way, "the tag of a Data-ACK does not verify")
            return
        self.counts["acks"] += 1
        fields = {"data ack": back.relative(*data_ack) if data_ack else None, "generation": tag[0]}
        if fin:
            fields["data fin"] = stream.relative(*fin)
            stream.fin = stream.fin or fields["data fin"] + 1
        self.report.tell(said.time, said.interface, subflow, stream.way, "Data-ACK", fields)
        if data_ack:
            self.check_data_ack(said.time, subflow, stream.way, back, data_ack)

    def check_data_ack(self, time, subflow, way, back, data_ack):
        acknowledged = back.relative(*data_ack)
        if not 1 <= acknowledged <= max(back.next, back.fin or 0) + 1:
            self.fail(time, subflow, way, f"the Data-ACK {acknowledged} covers what was never sent")

    def check_check(self, said, subflow, stream, asked):
        bits, value, tag = said.value[0], said.value[1:9], said.value[9:]
        kind = 2 if said.kind == "question" else 3
        message = keys.tagged(kind, 0, bits, int.from_bytes(value, "big"))
        if not self.verify(stream, bits, subflow.name, message, tag):
            self.fail(said.time, subflow, stream.way, f"the tag of a CHECK ({said.kind}) does not verify")
            return
        self.counts[said.kind + "s"] += 1
        fields = {"value": value.hex(), "generation": bits}
        self.report.tell(said.time, said.interface, subflow, stream.way, f"CHECK {said.kind}", fields)
        if kind == 3 and (1 - said.side, value) not in asked:
            self.fail(said.time, subflow, stream.way, "CHECK answers what was not asked")
        if not stream.capabilities & records.LIFE:
            self.fail(said.time, subflow, stream.way, "CHECK to a host that does not list LIFE")

    def both(self, subflow, side):
        """The stream that this side sends, and the other one."""
        way = self.way(subflow, side)
        return self.streams[way], self.streams[way[::-1]]

    def verify(self, stream, header, name, message, tag):
        """Whether a tag is that of what it covers, under a known generation with these bits."""
        if name is None:
            return False
        key = stream.way, name, message, tag
        if key not in self.tags:
            of_bits = stream.of_bits(header & 0x3F)
            self.tags[key] = any(each.tag(name, message, len(tag)) == tag for each in of_bits)
        return self.tags[key]

    def tell(self, subflow, way, what, fields):
        self.report.tell(subflow.time, subflow.interface, subflow, way, what, fields)

    def fail(self, time, subflow, way, why):
        self.report.fail(time, subflow.interface, subflow, way, why)


def follow(subflows, log, report):
    """Finds the connections and verifies all of each; returns them."""
    firsts = [subflow for subflow in subflows if subflow.offers[0] and subflow.flows[1] is not None]
    everything = [Connection(number, first, log, report) for number, first in enumerate(firsts)]
    live = [connection for connection in everything if connection.agree()]
    joins = [subflow for subflow in subflows if subflow.join[0] and len(subflow.join[0]) == 12]
    progress = True
    while progress:
        progress = any([connection.advance() for connection in live] + [assign(joins, live)])
        if not progress:
            # One at a time: what it says may let others go on.
            progress = any(stream.skip() for connection in live for stream in connection.streams.values())
    for subflow in joins:
        report.fail(subflow.time, subflow.interface, subflow, "ab", "a join with a token of no connection")
    for connection in live:
        connection.finish()
    return everything


def assign(joins, connections):
    """Gives joins to the connections that their tokens name. Returns whether there was one."""
    found = []
    for subflow in joins:
        token = int.from_bytes(subflow.join[0][4:8], "big")
        for connection in connections:
            responder = connection.knows(token)
            if responder:
                subflow.initiator, subflow.connection = "ab"["ab".index(responder) - 1], connection
                connection.subflows.append(subflow)
                connection.gather(subflow)
                found.append(subflow)
                break
    for subflow in found:
        joins.remove(subflow)
    return bool(found)
