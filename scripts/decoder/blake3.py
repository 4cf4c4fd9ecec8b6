"""Keyed BLAKE3 of at most one chunk (1024 bytes), which is more than any option tag covers."""

import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
# The columns of the state, then its diagonals: the order in which a round mixes them.
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
ROUNDS = 7
BLOCK, CHUNK = 64, 1024
CHUNK_START, CHUNK_END, ROOT, KEYED_HASH = 1, 2, 8, 16
MASK = 0xFFFFFFFF


def compress(chaining, block, length, flags):
    """One compression with the counter 0; returns the first eight words."""
    words = struct.unpack("<16I", block.ljust(BLOCK, b"\0"))
    v = [*chaining, *IV[:4], 0, 0, length, flags]
    for _ in range(ROUNDS):
        for n, (a, b, c, d) in enumerate(COLUMNS + DIAGONALS):
            for word, right_d, right_b in ((words[2 * n], 16, 12), (words[2 * n + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & MASK
                x = v[d] ^ v[a]
                v[d] = (x >> right_d | x << (32 - right_d)) & MASK
                v[c] = (v[c] + v[d]) & MASK
                x = v[b] ^ v[c]
                v[b] = (x >> right_b | x << (32 - right_b)) & MASK
        words = [words[at] for at in PERMUTATION]
    return [v[n] ^ v[n + 8] for n in range(8)]


def keyed(key, message):
    """The 32 bytes of keyed BLAKE3."""
    if len(key) != 32 or len(message) > CHUNK:
        raise ValueError("a key of 32 bytes and at most one chunk")
    chaining = struct.unpack("<8I", key)
    blocks = [message[at : at + BLOCK] for at in range(0, len(message), BLOCK)] or [b""]
    for n, block in enumerate(blocks):
        flags = KEYED_HASH | (CHUNK_START if n == 0 else 0) | (CHUNK_END | ROOT if n == len(blocks) - 1 else 0)
        chaining = compress(chaining, block, len(block), flags)
    return struct.pack("<8I", *chaining)
