"""Talks to the service of the soak until the file `stop` is there: short connections, transfers, slow readers, steady talks. Every byte is compared.

load.py WAY [HOST:PORT]: direct; through the SOCKS5 proxy or the forwarded port at HOST:PORT. Failures are lines on standard error, and the
last line on standard output is an object with the counts. Ends with status 1 after a failure.
"""

import asyncio
import collections
import json
import os
import random
import socket
import struct
import sys
import time

SERVICE = ("198.51.100.1", 7020)
BLOCK = open("block", "rb").read()
# A connection that moves no byte for so long has failed: longer than a path may be dead.
STALL = 60
counts = collections.Counter()
failures = []
start = time.time()


def pattern(seed, at, length):
    """The bytes of a stream from a place on: the block again and again, from the seed on."""
    at = (seed + at) % len(BLOCK)
    piece = BLOCK[at : at + length]
    while len(piece) < length:
        piece += BLOCK[: length - len(piece)]
    return piece


async def within(work):
    return await asyncio.wait_for(work, STALL)


async def connect(kind, length, seed):
    way = sys.argv[1]
    host, port = SERVICE if way == "direct" else sys.argv[2].rsplit(":", 1)
    reader, writer = await within(asyncio.open_connection(host, int(port), limit=1 << 16))
    if way == "socks":
        request = struct.pack(">3B4B4sH", 5, 1, 0, 5, 1, 0, 1, socket.inet_aton(SERVICE[0]), SERVICE[1])
        writer.write(request)
        answer = await within(reader.readexactly(12))
        if answer[:4] != b"\5\0\5\0":
            raise OSError(f"the proxy answers {answer[:4]}")
    writer.write(struct.pack(">cQQ", kind, length, seed))
    return reader, writer


async def check(reader, seed, at, end):
    """Reads from one place to another."""
    while at < end:
        data = await within(reader.read(min(1 << 16, end - at)))
        if not data:
            raise OSError(f"ended after {at} of {end} bytes")
        if data != pattern(seed, at, len(data)):
            raise OSError(f"other bytes at {at}")
        at += len(data)
        counts["bytes"] += len(data)


async def ended(reader):
    if await within(reader.read(1)):
        raise OSError("bytes after the end")


async def close(writer, abruptly=False):
    if abruptly:
        writer.transport.abort()
        return
    writer.close()
    await within(writer.wait_closed())


async def short(number):
    """An echo that ends in one of four ways."""
    length, seed = random.randrange(1, 40_000), random.randrange(len(BLOCK))
    reader, writer = await connect(b"e", length, seed)
    writer.write(pattern(seed, 0, length))
    if number % 4 == 3:
        await check(reader, seed, 0, length // 2)
        return await close(writer, abruptly=True)
    if number % 4 == 2:
        writer.write_eof()
    await check(reader, seed, 0, length)
    if number % 4 == 2:
        await ended(reader)
    await close(writer)


async def transfer(number):
    """A download or an upload."""
    length, seed = random.randrange(500_000, 2_500_000), random.randrange(len(BLOCK))
    if number % 2:
        reader, writer = await connect(b"d", length, seed)
        await check(reader, seed, 0, length)
    else:
        reader, writer = await connect(b"u", length, seed)
        for at in range(0, length, 1 << 16):
            writer.write(pattern(seed, at, min(1 << 16, length - at)))
            await within(writer.drain())
        verdict = await within(reader.readexactly(1))
        counts["bytes"] += length
        if verdict != b"k":
            raise OSError(f"the service says {verdict}")
    await ended(reader)
    await close(writer)


async def slow(number):
    """A reader that is much slower than the paths, and leaves in the middle or reads on to the end."""
    length, seed = 3_000_000, random.randrange(len(BLOCK))
    reader, writer = await connect(b"d", length, seed)
    at, until = 0, time.time() + random.uniform(5, 25)
    while time.time() < until:
        await check(reader, seed, at, at + 4096)
        at += 4096
        await asyncio.sleep(0.1)
    await close(writer, abruptly=number % 2 == 0)


async def steady(number):
    """A question and its answer several times a second: lives through upgrades, and measures how long a connection stands still."""
    seed, at, until = random.randrange(len(BLOCK)), 0, time.time() + random.uniform(40, 90)
    reader, writer = await connect(b"e", 1 << 40, seed)
    while time.time() < until and not os.path.exists("stop"):
        began = time.time()
        writer.write(pattern(seed, at, 2000))
        await check(reader, seed, at, at + 2000)
        at += 2000
        counts["longest_ms"] = max(counts["longest_ms"], int(1000 * (time.time() - began)))
        await asyncio.sleep(0.2)
    writer.write_eof()
    await ended(reader)
    await close(writer)


async def one(what, number):
    began = time.time()
    try:
        await what(number)
        counts[what.__name__] += 1
    except Exception as error:
        failures.append(what.__name__)
        at = f"{began - start:.1f} to {time.time() - start:.1f} s"
        print(f"{what.__name__} {number}, {at}: {error!r}", file=sys.stderr, flush=True)


async def again(what, pause):
    number = random.randrange(4)
    while not os.path.exists("stop"):
        await one(what, number)
        number += 1
        await asyncio.sleep(pause)


async def crowd():
    """Several at once, however long each takes."""
    running, number = set(), 0
    while not os.path.exists("stop"):
        for _ in range(random.choice([1, 1, 1, 6])):
            task = asyncio.create_task(one(short, number))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
        await asyncio.sleep(random.uniform(0.8, 2.4))
    await asyncio.gather(*running)


async def main():
    steadily = again(steady, 0)
    await asyncio.gather(crowd(), again(transfer, 0), again(transfer, 0.5), again(slow, 1), steadily)


asyncio.run(main())
print(json.dumps(dict(counts)))
sys.exit(1 if failures else 0)
