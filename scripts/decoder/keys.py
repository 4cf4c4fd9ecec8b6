"""Section 3: the key schedule. And what sections 2, 4 and 7 derive from it or authenticate by it."""

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from . import blake3

# Number of a suite: name, cipher, length of a key.
SUITES = {
    0x0001: ("AES-128-GCM", AESGCM, 16),
    0x0002: ("AES-256-GCM", AESGCM, 32),
    0x0010: ("ChaCha20-Poly1305", ChaCha20Poly1305, 32),
}
# Suites of TLS 1.3 and those of the blocks.
OF_TLS = {0x1301: 0x0001, 0x1302: 0x0002, 0x1303: 0x0010}
# Length of the confirmation.
CONFIRMATION = 16
# Flags in what an option tag covers.
DATA_FIN, MAPPING, DATA_ACK = 1, 2, 4


def hmac256(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def expand(secret, info, length, algorithm="sha256"):
    """HKDF-Expand (RFC 5869, section 2.3)."""
    out, block = b"", b""
    while len(out) < length:
        block = hmac.new(secret, block + info + bytes([len(out) // len(block or b"1") + 1]), algorithm).digest()
        out += block
    return out[:length]


def info_of(label, context, length):
    return struct.pack(">HB", length, len(label)) + label + bytes([len(context)]) + context


def xl(secret, label, context=b"", length=32):
    return expand(secret, info_of(b"mptcpsec " + label.encode(), context, length), length)


def exporter(secret, label, context, length):
    """The exporter of TLS 1.3 (RFC 8446, section 7.5), from EXPORTER_SECRET."""
    algorithm = {32: "sha256", 48: "sha384"}[len(secret)]

    def labelled(secret, label, context, length):
        return expand(secret, info_of(b"tls13 " + label, context, length), length, algorithm)

    empty = hashlib.new(algorithm).digest()
    derived = labelled(secret, label, empty, len(secret))
    return labelled(derived, b"exporter", hashlib.new(algorithm, context).digest(), length)


def master_of_tls(exporter_secret, transcript):
    th = hashlib.sha256(transcript).digest()
    return exporter(exporter_secret, b"EXPERIMENTAL mptcpsec v2 master", th, 32)


def master_of_tcpcrypt(shared, nonce_a, transcript, init1, init2):
    return expand(hmac256(nonce_a, transcript + init1 + init2 + shared), b"\x4d", 32)


def confirmation_of(secret, transcript):
    """What B says last in its handshake. `secret` is EXPORTER_SECRET, or the master secret of tcpcrypt."""
    th = hashlib.sha256(transcript).digest()
    return expand(hmac256(th, secret), b"mptcpsec confirmation", CONFIRMATION)


class Generation:
    """All secrets of one direction ("ab" or "ba") in one generation of keys."""

    def __init__(self, way, number, data, option, signals):
        self.way, self.number, self.data, self.option = way, number, data, option
        self.path, self.fast_close, self.joins = signals
        self.option_keys, self.ciphers = {}, {}

    @classmethod
    def first(cls, way, ms):
        a = way[0]
        joins = {side: xl(ms, "join " + side) for side in "ab"} if way == "ab" else None
        signals = xl(ms, "path " + way), xl(ms, "fclose " + a, b"", 8), joins
        return cls(way, 0, xl(ms, "data " + way), xl(ms, "opt " + way), signals)

    def next(self, mixes):
        """The generation that follows, with what paths have given in between (section 7)."""
        data, option = xl(self.data, "ku"), xl(self.option, "ku")
        if mixes:
            data, option = (hmac256(secret, b"".join(mixes)) for secret in (data, option))
        joins = {side: xl(data, "join " + side) for side in "ab"} if self.way == "ab" else None
        signals = xl(data, "path"), xl(data, "fclose", b"", 8), joins
        return Generation(self.way, self.number + 1, data, option, signals)

    @property
    def bits(self):
        """What the wire has of its number."""
        return self.number & 0x3F

    def open(self, suite, header, dsn, sealed):
        """The plain text of a block without its option tag; None if it does not verify."""
        if suite not in self.ciphers:
            _, cipher, length = SUITES[suite]
            number = struct.pack(">H", suite)
            self.ciphers[suite] = cipher(xl(self.data, "key", number, length)), xl(self.data, "iv", number, 12)
        cipher, iv = self.ciphers[suite]
        mask = bytes([header & 0xC0]) + bytes(3) + struct.pack(">Q", dsn)
        nonce = bytes(x ^ y for x, y in zip(iv, mask))
        try:
            return cipher.decrypt(nonce, sealed, bytes([header]))
        except InvalidTag:
            return None

    def option_key(self, subflow):
        if subflow not in self.option_keys:
            self.option_keys[subflow] = xl(self.option, "sf", struct.pack(">Q", subflow))
        return self.option_keys[subflow]

    def tag(self, subflow, message, length):
        return blake3.keyed(self.option_key(subflow), message)[:length]

    def path_key(self, subflow, kind, number, fresh):
        """Key and nonce of a PATHKEY."""
        out = xl(self.path, "path", struct.pack(">QBI", subflow, kind, number) + fresh, 44)
        return out[:32], out[32:]


def tagged(kind, flags, header, dsn, offset=0, length=0, data_ack=0, data_tag=b""):
    """M of section 4: `kind` is the class; nothing uses its field for options yet."""
    return struct.pack(">4BQQHHQH", 1, kind, flags, header, dsn, offset, length, 0, data_ack, 0) + data_tag


def open_path_key(generation, subflow, kind, number, offered, message):
    """The text of a PATHKEY; `offered` are the fresh bytes of its offer, if this is an answer."""
    key, nonce = generation.path_key(subflow, kind, number, offered + message[6:22])
    try:
        return AESGCM(key).decrypt(nonce, message[22:], message[:22])
    except InvalidTag:
        return None


def mix_of(subflow, number, k_mlkem, k_x25519, offer, answer):
    name = struct.pack(">QI", subflow, number)
    return hmac256(bytes(32), b"mptcpsec v2 path mix" + name + k_mlkem + k_x25519 + offer + answer)


def join_hmacs(joins, initiator, body):
    """HMAC_A (20 bytes) and HMAC_B (8 bytes) of a join that this side ("a" or "b") began."""
    responder = "b" if initiator == "a" else "a"
    return hmac256(joins[initiator], b"JA" + body)[:20], hmac256(joins[responder], b"JB" + body)[:8]


def subflow_id(hmac_a, hmac_b):
    first31 = [int.from_bytes(each[:4], "big") >> 1 for each in (hmac_a, hmac_b)]
    return first31[0] << 31 | first31[1]


def syn_name(flags, address, nonce):
    return 1 << 63 | (flags & 15) << 40 | address << 32 | nonce
