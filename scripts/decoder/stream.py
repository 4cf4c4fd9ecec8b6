"""The blocks of one direction in the order of their numbers: opened, their records read, and the keys that follow from them."""

import dataclasses

from . import keys, records

DATA, CONTROL = 0x00, 0x80
OVERHEAD = 33
DSN_LIMIT = 1 << 64


@dataclasses.dataclass
class Body:
    """What is the same in all transmissions of a block."""

    time: int
    interface: str
    subflow: object
    header: int
    sealed: bytes
    fin: bool


class Stream:
    """`report` takes events; `mixes` has what exchanges have come to, by subflow and number."""

    def __init__(self, way, ms, suite, report, mixes, capabilities):
        self.way, self.suite, self.report, self.mixes = way, suite, report, mixes
        self.capabilities = capabilities
        self.generations = [keys.Generation.first(way, ms)]
        self.idsn = int.from_bytes(keys.xl(ms, "idsn " + way[0], b"", 8), "big")
        # Relative data sequence numbers: the first block has 1.
        self.blocks, self.next, self.opened, self.visited = {}, 1, 0, set()
        self.text, self.waiting_mixes, self.records = bytearray(), [], []
        self.fin = None

    def relative(self, dsn, length):
        """The number of a block counted from IDSN, also where four bytes of it were sent."""
        if length == 4:
            near = (self.idsn + self.next) % (1 << 32)
            return self.next + ((dsn - near + (1 << 31)) % (1 << 32) - (1 << 31))
        return (dsn - self.idsn) % DSN_LIMIT

    def absolute(self, relative):
        return (self.idsn + relative) % DSN_LIMIT

    def add(self, relative, body):
        """Takes a block from a transmission. Copies that are alike count once."""
        known = self.blocks.setdefault(relative, [])
        if (body.header, body.sealed) not in [(each.header, each.sealed) for each in known]:
            known.append(body)

    def of_bits(self, bits):
        """The known generations with these six bits, the newest first."""
        return [each for each in reversed(self.generations) if each.bits == bits]

    def advance(self):
        """Opens what can be opened now; returns whether that was something."""
        before = self.next
        while self.next in self.blocks and self.step(False):
            pass
        return self.next != before

    def step(self, is_last_resort):
        """Takes the next block, and returns whether it could. Without its keys, or a secret that it mixes, it waits for the last resort."""
        bodies, generation = self.blocks[self.next], self.generations[-1]
        texts = [self.open(generation, body) for body in bodies]
        good = next((n for n, text in enumerate(texts) if text is not None), None)
        if good is None and not is_last_resort:
            return False
        if good is not None and not self.deliver(bodies[good], texts[good], is_last_resort):
            return False
        for body, text in zip(bodies, texts):
            if text is None:
                self.fail(body, f"block {self.next} does not verify under the keys of generation {generation.number}")
        body = bodies[good or 0]
        self.visited.add(self.next)
        self.opened += good is not None
        self.next += len(body.sealed) + OVERHEAD - 16
        if body.fin:
            self.fin = self.next
        return True

    def open(self, generation, body):
        """The plain text of the next block, if this is it; None if not."""
        if body.header & 0x3F != generation.bits or body.header & 0xC0 not in (DATA, CONTROL):
            return None
        return generation.open(self.suite, body.header, self.absolute(self.next), body.sealed)

    def skip(self):
        """What is missing, where nothing else can be done. Returns whether there is something behind it."""
        if self.next in self.blocks:
            return self.step(True)
        behind = [dsn for dsn in self.blocks if dsn > self.next]
        if not behind:
            return False
        first = min(behind)
        self.fail(self.blocks[first][0], f"{first - self.next} bytes in front of block {first} were not captured")
        self.next = first
        return True

    def deliver(self, body, text, is_last_resort):
        """Takes the plain text of the next block; False if it has to wait."""
        detail = {"dsn": self.next, "generation": self.generations[-1].number, "bytes": len(text)}
        if body.header & 0xC0 == DATA:
            self.tell(body, "block of data", detail)
            self.text += text
            return True
        try:
            found = records.parse(text, self.capabilities)
        except records.RecordError as error:
            self.fail(body, f"block {self.next}: {error}")
            return True
        missing = [fields for name, fields in found if name == "MIX" and self.mix(fields) is None]
        if missing and not is_last_resort:
            return False
        self.tell(body, "block of control", detail)
        for name, fields in found:
            self.take(body, name, fields)
        return True

    def mix(self, fields):
        return self.mixes.get((fields["subflow"], fields["number"]))

    def take(self, body, name, fields):
        self.tell(body, name, fields)
        is_first = not self.records
        self.records.append((name, fields))
        if self.way == "ab" and is_first != (name == "OPENING"):
            self.fail(body, "OPENING is the first record of A, and no other is")
        if name in ("TICKET", "OPENED") and (self.way != "ba" or not is_first):
            self.fail(body, f"{name} is the first record of B alone")
        if name in ("REFUSED", "REQUIRE") and self.way != "ba":
            self.fail(body, f"{name} is a record of B alone")
        if name == "MIX":
            if self.mix(fields) is None:
                self.fail(body, "the secret of this exchange does not follow from captures and key log")
            else:
                self.waiting_mixes.append(self.mix(fields))
        elif name == "KEY_UPDATE":
            self.generations.append(self.generations[-1].next(self.waiting_mixes))
            self.tell(body, "generation", {"number": self.generations[-1].number, "shares": len(self.waiting_mixes)})
            self.waiting_mixes = []

    def tell(self, body, what, fields):
        self.report.tell(body.time, body.interface, body.subflow, self.way, what, fields)

    def fail(self, body, why):
        self.report.fail(body.time, body.interface, body.subflow, self.way, why)
