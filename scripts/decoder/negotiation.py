"""Sections 1 and 2: the options of both SYNs, both prologues, and the master secret with the help of a key log."""

import dataclasses

from cryptography.hazmat.primitives.asymmetric import ec, x25519

from . import keys

MPTCP, ENO = 30, 69
TEPS = {0x23: "tcpcrypt with Curve25519", 0x21: "tcpcrypt with P-256", 0xA0: "TLS 1.3"}
INIT1, INIT2 = bytes.fromhex("15101a0e"), bytes.fromhex("097105e0")
NONCE = 32


class NegotiationError(Exception):
    """What the ends have said is no handshake, or the key log lacks something."""


class KeyLog:
    """Lines of key logs: label, name of the secret, secret."""

    def __init__(self, paths):
        self.secrets, self.shares = {}, {}
        for path in paths:
            with open(path, encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if len(words) == 3 and not line.startswith("#"):
                        self.add(words[0], bytes.fromhex(words[1]), bytes.fromhex(words[2]))

    def add(self, label, name, secret):
        if label == "MPTCPSEC_SHARE":
            # Session id; subflow, number, both agreements.
            self.shares[name, secret[:12]] = secret[12:44], secret[44:76]
        else:
            self.secrets[label, name] = secret


def mptcp_option(segment, subtype):
    """The first option of Multipath TCP with this subtype."""
    return next((o for o in segment.options if o[0] == MPTCP and len(o) > 2 and o[2] >> 4 == subtype), None)


def offer_in(segment):
    """MP_CAPABLE of version 2 without flag D, and TCP-ENO, as a SYN or a SYN/ACK of a sealed connection has them."""
    capable = mptcp_option(segment, 0)
    eno = next((o for o in segment.options if o[0] == ENO), None)
    if capable is None or eno is None or len(capable) != 4 or capable[2] & 15 != 2 or capable[3] & 0x10:
        return None
    return capable, eno


def teps_in(eno):
    """The encryption specs of a TCP-ENO option: those with bit v have data, up to the end of the option where no length is said."""
    specs, at = [], 2
    while at < len(eno):
        byte = eno[at]
        at += 1
        if byte < 0x80:
            if byte >= 0x20:
                specs.append(byte)
            continue
        if byte < 0xA0:
            # A length byte: that of the data of the spec behind it, less one.
            length, byte = (byte & 0x1F) + 1, eno[at] if at < len(eno) else 0
            at += 1 + length
        else:
            at = len(eno)
        specs.append(byte)
    return specs


@dataclasses.dataclass
class Prologue:
    raw: bytes
    capabilities: int
    instance: bytes

    @classmethod
    def parse(cls, said, from_b):
        length = said[0] if said else 0
        if not (20 if from_b else 4) <= length <= 63 or len(said) <= length:
            raise NegotiationError("a prologue that is none")
        raw = said[: 1 + length]
        return cls(raw, int.from_bytes(raw[1:5], "big"), raw[5:21] if from_b else b"")


@dataclasses.dataclass
class Agreed:
    """What a handshake has come to."""

    tep: int
    suite: int
    ms: bytes
    transcript: bytes
    prologues: tuple
    confirmation: bytes


def agree(offers, said, log):
    """From the options of SYN and SYN/ACK, and the bytes that both ends said in front of their first mapping."""
    chosen = teps_in(offers[1][1])
    if len(chosen) != 1 or chosen[0] not in TEPS or chosen[0] not in teps_in(offers[0][1]):
        raise NegotiationError("B has not chosen one of the encryption specs of A")
    tep = chosen[0]
    prologues = Prologue.parse(said[0], False), Prologue.parse(said[1], True)
    transcript = b"".join(offers[0]) + b"".join(offers[1]) + prologues[0].raw + prologues[1].raw
    behind = [bytes(each[len(prologue.raw) :]) for each, prologue in zip(said, prologues)]
    behind[1], confirmation = behind[1][: -keys.CONFIRMATION], behind[1][-keys.CONFIRMATION :]
    take = of_tls if tep == 0xA0 else of_tcpcrypt
    suite, ms, secret = take(tep, behind, transcript, log)
    if confirmation != keys.confirmation_of(secret, transcript):
        raise NegotiationError("the confirmation of B does not fit what both ends have said")
    return Agreed(tep, suite, ms, transcript, prologues, confirmation)


def of_tls(_, said, transcript, log):
    """Suite, master secret, and the secret of the confirmation."""
    hello, answers = messages_of_tls(said[0]), messages_of_tls(said[1])
    if not hello or hello[0][0] != 1:
        raise NegotiationError("no ClientHello behind the prologue of A")
    # After a HelloRetryRequest there is a second one.
    server = [body for kind, body in answers if kind == 2]
    if not server:
        raise NegotiationError("no ServerHello behind the prologue of B")
    random = hello[0][1][2:34]
    session = server[-1][34]
    suite = int.from_bytes(server[-1][35 + session : 37 + session], "big")
    secret = log.secrets.get(("EXPORTER_SECRET", random))
    if secret is None:
        raise NegotiationError("no EXPORTER_SECRET in the key log for this client random")
    if suite not in keys.OF_TLS:
        raise NegotiationError(f"cipher suite {suite:04x} of TLS has no suite of blocks")
    return keys.OF_TLS[suite], keys.master_of_tls(secret, transcript), secret


def messages_of_tls(said):
    """Handshake messages in clear, as (type, body). Records have to end where the bytes do."""
    handshake, at, found = b"", 0, []
    while at < len(said):
        length = int.from_bytes(said[at + 3 : at + 5], "big")
        if at + 5 + length > len(said):
            raise NegotiationError("the handshake ends within a record of TLS")
        if said[at] == 22:
            handshake += said[at + 5 : at + 5 + length]
        at += 5 + length
    at = 0
    while at + 4 <= len(handshake):
        length = int.from_bytes(handshake[at + 1 : at + 4], "big")
        found.append((handshake[at], handshake[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def of_tcpcrypt(tep, said, transcript, log):
    """As `of_tls`. RFC 8548, section 4.1: magic, length, ciphers (in Init1 behind their count), nonce, public key."""
    for message, magic in zip(said, (INIT1, INIT2)):
        if message[:4] != magic or int.from_bytes(message[4:8], "big") != len(message):
            raise NegotiationError("the first mapping does not begin right behind Init1, or the confirmation behind Init2")
    begins = 9 + 2 * said[0][8], 10
    suite = int.from_bytes(said[1][8:10], "big")
    offered = [int.from_bytes(said[0][at : at + 2], "big") for at in range(9, begins[0], 2)]
    if suite not in offered or suite not in keys.SUITES:
        raise NegotiationError(f"B has chosen cipher {suite:04x}, which A has not offered")
    nonces = [message[at : at + NONCE] for message, at in zip(said, begins)]
    publics = [message[at + NONCE :] for message, at in zip(said, begins)]
    shared = log.secrets.get(("TCPCRYPT_SHARED_SECRET", nonces[0]))
    for mine in (0, 1):
        private = log.secrets.get(("TCPCRYPT_PRIVATE_KEY", nonces[mine]))
        if private is not None:
            computed = exchange(tep, private, publics[1 - mine])
            if shared not in (None, computed):
                raise NegotiationError("the shared secret in the key log is not that of the private key in it")
            shared = computed
    if shared is None:
        raise NegotiationError("no TCPCRYPT_SHARED_SECRET in the key log for this nonce of A")
    ms = keys.master_of_tcpcrypt(shared, nonces[0], transcript, said[0], said[1])
    return suite, ms, ms


def exchange(tep, private, public):
    """Curve25519, or P-256 with a compressed point behind its length (RFC 8548, section 5)."""
    if tep == 0x23:
        key = x25519.X25519PrivateKey.from_private_bytes(private)
        return key.exchange(x25519.X25519PublicKey.from_public_bytes(public[:32]))
    curve = ec.SECP256R1()
    key = ec.derive_private_key(int.from_bytes(private, "big"), curve)
    return key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(curve, public[2:35]))
