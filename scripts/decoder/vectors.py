"""Published vectors: life.json is written here, all are checked here, and the tests of the Rust crates check them too."""

import hashlib
import json
import pathlib
import struct

from . import datagrams, keys, negotiation, records

ROOT = pathlib.Path(__file__).resolve().parents[2] / "crates/core"
SEALED = ROOT / "protect/tests/vectors"
LIFE = SEALED / "life.json"
DATAGRAMS = SEALED / "datagrams.json"
MS = bytes(range(0x40, 0x60))
SUBFLOW = 0x2A1EBCDC41F173F1
EXCHANGE = {"subflow": SUBFLOW, "number": 65537}
VALUE = 0x1122334455667788
# Reasons of REFUSED; there is no seventh one.
REFUSALS = (0, 1, 2, 3, 4, 5, 6)
OPTION = {2: "f2", 3: "f3"}


def counting(first, length):
    return bytes((first + n) % 256 for n in range(length))


def generations(way, count):
    found = [keys.Generation.first(way, MS)]
    while len(found) < count:
        found.append(found[-1].next([]))
    return found


def check_option(generation, subflow, kind, value):
    """`30, 20, F2 | F3, generation, value, tag`."""
    tag = generation.tag(subflow, keys.tagged(kind, 0, generation.bits, value), 8)
    return bytes([30, 20]) + bytes.fromhex(OPTION[kind]) + bytes([generation.bits]) + value.to_bytes(8, "big") + tag


def life():
    """All of life.json."""
    ways = {way: generations(way, 3) for way in ("ab", "ba")}
    checks = [
        {
            "way": way,
            "generation": each.number,
            "subflow": f"{subflow:016x}",
            "question": check_option(each, subflow, 2, VALUE).hex(),
            "answer": check_option(each, subflow, 3, VALUE).hex(),
        }
        for way, found in ways.items()
        for each in found
        for subflow in (0, SUBFLOW)
    ]
    beside = [
        {
            "generation": number,
            **{f"path_{way}": found[number].path.hex() for way, found in ways.items()},
            **{f"fclose_{way[0]}": found[number].fast_close.hex() for way, found in ways.items()},
            **{f"join_{side}": ways["ab"][number].joins[side].hex() for side in "ab"},
        }
        for number in range(3)
    ]
    name = SUBFLOW.to_bytes(8, "big")
    exchange = name + EXCHANGE["number"].to_bytes(4, "big")
    said = {
        "gone": (b"\x10" + name + b"\x05").hex(),
        "void": (b"\x11" + exchange).hex(),
        "agreed": (b"\x14" + exchange).hex(),
        "mix": (b"\x03" + exchange).hex(),
        **{f"refused_{reason}": bytes([0x12, reason]).hex() for reason in REFUSALS},
    }
    return {
        "note": "written by scripts/decode --write-vectors; checks have the value 1122334455667788",
        "ms": MS.hex(),
        "checks": checks,
        "beside_the_stream": beside,
        "records": {"subflow": f"{SUBFLOW:016x}", "number": EXCHANGE["number"], "reason": 5, **said},
        "tls": of_tls(),
        "tcpcrypt": of_tcpcrypt(),
    }


def transcript_of(enos):
    """Options and prologues of both ends; B's prologue has four unknown bytes."""
    said = {
        "mp_capable_a": bytes.fromhex("1e040200"),
        "eno_a": bytes.fromhex(enos[0]),
        "mp_capable_b": bytes.fromhex("1e040200"),
        "eno_b": bytes.fromhex(enos[1]),
        "prologue_a": bytes.fromhex("040000000d"),
        "prologue_b": bytes.fromhex("180000000d") + counting(0x90, 16) + bytes.fromhex("deadbeef"),
    }
    return said, b"".join(said.values())


# Flow, ECN codepoint, number, piece and payload of the datagrams with the counters 0, 1, 2 and 3.
SENT = (
    (0, 0, None, None, b""),
    (63, 1, 7, None, b"copies have a number"),
    (64, 2, None, None, b"two bytes of flow"),
    ((1 << 30) - 1, 3, 0xFFFFFFFF, (3, 4), b"the last piece"),
)


def datagrams_json():
    """All of datagrams.json."""
    found = []
    for way in ("ab", "ba"):
        for generation in generations(way, 2):
            for suite in keys.SUITES:
                for subflow in (0, SUBFLOW):
                    sealed = [
                        datagrams.seal(generation, suite, subflow, at, payload, flow=flow, ecn=ecn, number=number, piece=piece).hex()
                        for at, (flow, ecn, number, piece, payload) in enumerate(SENT)
                    ]
                    report = datagrams.report_option(generation, subflow, 4, 3, 250).hex()
                    name = {"way": way, "generation": generation.number, "suite": suite, "subflow": f"{subflow:016x}"}
                    found.append({**name, "sealed": sealed, "report": report})
    names = ("flow", "ecn", "number", "piece", "payload")
    sent = [dict(zip(names, (*each[:4], each[4].hex()))) for each in SENT]
    records_of = {
        "open_flow": b"\x15" + struct.pack(">IB", 6, 7) + b"host:53",
        "close_flow": b"\x16" + struct.pack(">IQ", 6, 1000),
        "datagram": b"\x17" + struct.pack(">IBH", 6, 1, 5) + b"voice",
    }
    note = "written by scripts/decode --write-vectors; the counters of sent are 0, 1, 2 and 3, a report has next 4, count 3, delay 250"
    return {"note": note, "ms": MS.hex(), "sent": sent, "found": found, "records": {k: v.hex() for k, v in records_of.items()}}


def check_datagrams(checks, published):
    for name, value in json.loads(json.dumps(datagrams_json())).items():
        checks.equal(f"datagrams.json, {name}", value, published[name])
    for known in published["found"]:
        generation = generations(known["way"], 2)[known["generation"]]
        for at, (sealed, sent) in enumerate(zip(known["sealed"], published["sent"])):
            data = bytes.fromhex(sealed)
            head = datagrams.parse(data)
            text = datagrams.open_with(generation, known["suite"], int(known["subflow"], 16), head, at, data)
            checks.equal("datagram", (head.flow, head.counter, text and text.hex() or ""), (sent["flow"], at, sent["payload"]))
    for name, fields in (
        ("open_flow", {"flow": 6, "destination": "host:53"}),
        ("close_flow", {"flow": 6, "sent": 1000}),
        ("datagram", {"flow": 6, "ecn": 1, "bytes": 5}),
    ):
        found = records.parse(bytes.fromhex(published["records"][name]), records.DATAGRAMS)
        checks.equal(f"datagrams.json, {name} read", found, [(name.upper(), fields)])


def of_tls():
    said, transcript = transcript_of(("45062321a001", "450501a001"))
    out = {name: value.hex() for name, value in said.items()}
    out["th"] = hashlib.sha256(transcript).hexdigest()
    for length in (32, 48):
        secret = counting(0x11, length)
        out[f"exporter_secret_{length}"] = secret.hex()
        out[f"ms_{length}"] = keys.master_of_tls(secret, transcript).hex()
        out[f"confirmation_{length}"] = keys.confirmation_of(secret, transcript).hex()
    return out


def of_tcpcrypt():
    said, transcript = transcript_of(("45062321a001", "45040123"))
    known = json.loads((ROOT / "handshake/tests/vectors/tcpcrypt.json").read_text())
    init1, init2, nonce, private = (bytes.fromhex(known[name]) for name in ("Init1", "Init2", "N_A", "priv_A"))
    shared = negotiation.exchange(0x23, private, init2[42:])
    out = {name: value.hex() for name, value in said.items()}
    out["init1"], out["init2"], out["shared_secret"] = init1.hex(), init2.hex(), shared.hex()
    ms = keys.master_of_tcpcrypt(shared, nonce, transcript, init1, init2)
    out["ms"], out["confirmation"] = ms.hex(), keys.confirmation_of(ms, transcript).hex()
    return out


class Checks:
    def __init__(self):
        self.done, self.wrong = 0, []

    def equal(self, what, found, known):
        self.done += 1
        if found != known:
            self.wrong.append(f"{what}: {found}, and {known} is published")


def run(write):
    if write:
        LIFE.write_text(json.dumps(life(), indent=1) + "\n")
        DATAGRAMS.write_text(json.dumps(datagrams_json(), indent=1) + "\n")
        print(f"decode: {LIFE} and {DATAGRAMS} are written")
        return 0
    checks = Checks()
    published = json.loads(LIFE.read_text())
    for name, value in life().items():
        checks.equal(f"life.json, {name}", value, published[name])
    check_records(checks, published["records"])
    check_datagrams(checks, json.loads(DATAGRAMS.read_text()))
    check_sealed(checks, json.loads((SEALED / "mptcpsec_ms1.json").read_text()))
    check_mix(checks, json.loads((SEALED / "path_mix.json").read_text()))
    known = json.loads((ROOT / "handshake/tests/vectors/tcpcrypt.json").read_text())
    init = [bytes.fromhex(known[name]) for name in ("Init1", "Init2")]
    transcript, nonce, shared = (bytes.fromhex(known[name]) for name in ("eno_transcript", "N_A", "ES"))
    ms = keys.master_of_tcpcrypt(shared, nonce, transcript, *init)
    checks.equal("tcpcrypt.json", ms.hex(), known["mptcpsec_ms = CPRF(ss0, 0x4D, 32)"])
    for line in checks.wrong:
        print(f"FAILED {line}")
    print(f"decode: {checks.done} values checked, {len(checks.wrong)} differ")
    return 1 if checks.wrong else 0


def check_records(checks, published):
    subflow = int(published["subflow"], 16)
    exchange = {"subflow": subflow, "number": published["number"]}
    expected = {name.upper(): exchange for name in ("void", "agreed", "mix")}
    expected["GONE"] = {"subflow": subflow, "reason": records.REASONS[published["reason"]]}
    for name, fields in expected.items():
        found = records.parse(bytes.fromhex(published[name.lower()]), records.LIFE)
        checks.equal(f"life.json, {name} read", found, [(name, fields)])
    for reason in REFUSALS:
        found = records.parse(bytes.fromhex(published[f"refused_{reason}"]), records.REFUSED)
        known = records.REFUSALS[reason % len(records.REFUSALS)]
        checks.equal(f"life.json, REFUSED {reason} read", found, [("REFUSED", {"reason": known})])


def check_sealed(checks, published):
    schedule = published["key_schedule"]
    for way, found in {way: generations(way, 2) for way in ("ab", "ba")}.items():
        checks.equal(f"ts_{way}_0", found[0].data.hex(), schedule[f"ts_{way}_0"])
        checks.equal(f"os_{way}_1", found[1].option.hex(), schedule[f"os_{way}_1_after_key_update"])
        checks.equal(f"fclose_{way[0]}", found[0].fast_close.hex(), schedule[f"fclose_{way[0]}"])
    join = published["join"]
    joins = generations("ab", 1)[0].joins
    hmacs = keys.join_hmacs(joins, "a", bytes.fromhex(join["msg_body"]))
    checks.equal("HMAC_A", hmacs[0].hex(), join["HMAC_A_ack_160"])
    checks.equal("HMAC_B", hmacs[1].hex(), join["HMAC_B_synack_64"])
    checks.equal("subflow id", f"{keys.subflow_id(*hmacs):016x}", join["subflow_id_u64"])
    for block in published["data_blocks"]:
        generation = generations(block["dir"], 64)[block["H"] & 0x3F]
        dsn, tag = int(block["dsn"], 16), block["data_tag"]
        text = generation.open(block["suite_id"], block["H"], dsn, bytes.fromhex(block["ciphertext"] + tag))
        checks.equal(f"block {block['dsn']}", text and text.hex(), block["plaintext"])
        for sent in (block["sf_first"], block["sf_joined"]):
            fields = sent["flags"], block["H"], dsn, sent["offset"], block["dll"], int(sent["data_ack"], 16)
            message = keys.tagged(0, *fields, bytes.fromhex(tag))
            checks.equal("M", message.hex(), sent["opt_msg"])
            found = generation.tag(int(sent["subflow_id"], 16), message, 16)
            checks.equal("T_o", found.hex(), sent["tag_blake3"])


def check_mix(checks, published):
    """The offer is opened by the keys; what both agree on takes ML-KEM, which is in path_mix.py."""
    subflow, number, mix = published["subflow"], published["number"], bytes.fromhex(published["mix"])
    offer, answer = (bytes.fromhex(published[name]) for name in ("offer", "answer"))
    first = {way: keys.Generation.first(way, bytes.fromhex(published["ms"])) for way in ("ab", "ba")}
    text = keys.open_path_key(first["ba"], subflow, 1, number, b"", offer)
    checks.equal("offer", text and text[:33].hex(), "00" + published["seed_b"][:64])
    checks.equal("answer", len(keys.open_path_key(first["ab"], subflow, 2, number, offer[6:22], answer) or b""), 1153)
    for way, generation in first.items():
        following = generation.next([mix])
        values = {"ts": following.data, "os": following.option, "path": following.path}
        for name, value in values.items():
            checks.equal(f"{name}_{way}", value.hex(), published[f"{name}_{way}_1_of_mix"])
        checks.equal("fclose", following.fast_close.hex(), published[f"fclose_{way[0]}_1_of_mix"])
        for side, secret in (following.joins or {}).items():
            checks.equal(f"join_{side}", secret.hex(), published[f"join_{side}_1_of_mix"])
