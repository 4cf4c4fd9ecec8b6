#!/usr/bin/env python3
"""Known answers for a share of the keys from a path (docs/protocol.md, section 7), computed from that page alone.

    python3 path_mix.py > path_mix.json        needs the package `cryptography`, with ML-KEM
"""
import hashlib
import hmac
import json

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def hmac256(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def expand(secret, label, context, length):
    label = b"mptcpsec " + label
    info = length.to_bytes(2) + bytes([len(label)]) + label + bytes([len(context)]) + context
    out, block, count = b"", b"", 1
    while len(out) < length:
        block = hmac256(secret, block + info + bytes([count]))
        out, count = out + block, count + 1
    return out[:length]


def message(ms, way, kind, subflow, number, offered, fresh, text):
    path = expand(ms, b"path " + way, b"", 32)
    header = bytes([kind, 0]) + number.to_bytes(4, "big") + fresh
    context = subflow.to_bytes(8, "big") + bytes([kind]) + number.to_bytes(4, "big") + offered + fresh
    keys = expand(path, b"path", context, 44)
    return header + AESGCM(keys[:32]).encrypt(keys[32:], text, header)


ms = bytes(range(0x40, 0x60))
subflow, number = 0x2A1EBCDC41F173F1, 65537
fresh_b, fresh_a = bytes(range(0xA0, 0xB0)), bytes(range(0xC0, 0xD0))
# B speaks first: no number of a path, random bytes, an X25519 key, the seed of an ML-KEM key pair.
seed_b = bytes((7 * i + 3) % 256 for i in range(128))
x_b, kem = X25519PrivateKey.from_private_bytes(seed_b[32:64]), MLKEM768PrivateKey.from_seed_bytes(seed_b[64:])
offer = b"\0" + seed_b[:32] + x_b.public_key().public_bytes_raw() + kem.public_key().public_bytes_raw()
# A answers, over the path that it counts as its third.
path = b"\2"
s_a, x_a = bytes(range(0x80, 0xA0)), X25519PrivateKey.from_private_bytes(bytes(range(0xC0, 0xE0)))
k_kem, ciphertext = kem.public_key().encapsulate()
if len(k_kem) != 32:
    k_kem, ciphertext = ciphertext, k_kem
assert kem.decapsulate(ciphertext) == k_kem
answer = path + s_a + x_a.public_key().public_bytes_raw() + ciphertext
k_x = x_a.exchange(X25519PublicKey.from_public_bytes(offer[33:65]))
material = b"mptcpsec v2 path mix" + subflow.to_bytes(8) + number.to_bytes(4) + k_kem + k_x + offer + answer
mix = hmac256(bytes(32), material)
other = bytes([0x5A]) * 32
answers = {
    "ms": ms,
    "fresh_b": fresh_b,
    "seed_b": seed_b,
    "offer": message(ms, b"ba", 1, subflow, number, b"", fresh_b, offer),
    "answer": message(ms, b"ab", 2, subflow, number, fresh_b, fresh_a, answer),
    "mix": mix,
    "another_mix": other,
}
for way in (b"ab", b"ba"):
    for name, label in ((b"ts_", b"data "), (b"os_", b"opt ")):
        salt = expand(expand(ms, label + way, b"", 32), b"ku", b"", 32)
        answers[(name + way + b"_1_of_mix").decode()] = hmac256(salt, mix)
        answers[(name + way + b"_1_of_mix_and_another").decode()] = hmac256(salt, mix + other)
    data = answers[f"ts_{way.decode()}_1_of_mix"]
    answers[f"path_{way.decode()}_1_of_mix"] = expand(data, b"path", b"", 32)
    answers[f"fclose_{way.decode()[0]}_1_of_mix"] = expand(data, b"fclose", b"", 8)
for side in ("a", "b"):
    answers[f"join_{side}_1_of_mix"] = expand(answers["ts_ab_1_of_mix"], f"join {side}".encode(), b"", 32)
print(json.dumps({"subflow": subflow, "number": number} | {name: value.hex() for name, value in answers.items()}, indent=1))
