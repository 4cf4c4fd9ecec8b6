"""The command line."""

import argparse
import json
import pathlib
import sys

from . import capture, connection, negotiation, report, trace, vectors

EPILOG = """\
Captures are pcapng or pcap (what `plait --pcap` and tcpdump write), of all paths and from the first SYN on; several are
merged by their times. The key log is what SSLKEYLOGFILE of plait writes.

exit codes: 0 everything verifies; 1 something does not, with a line FAILED that says what and where; 2 usage, or a file
that cannot be read."""


def main():
    parser = argparse.ArgumentParser(
        prog="decode",
        description="Verify captures of sealed connections, by docs/protocol.md alone.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    parser.add_argument("captures", nargs="*", metavar="CAPTURE")
    parser.add_argument("--keys", action="append", default=[], metavar="FILE", help="a key log; may be repeated")
    parser.add_argument("--json", action="store_true", help="an object a line in place of text")
    parser.add_argument("--quiet", action="store_true", help="only what fails, and the summary of each connection")
    parser.add_argument("--streams", metavar="DIR", help="write the bytes of the application to DIR/CONNECTION-ab and -ba")
    parser.add_argument("--vectors", action="store_true", help="check the published vectors in place of a capture")
    parser.add_argument("--write-vectors", action="store_true", help="write life.json anew")
    options = parser.parse_args()
    if options.vectors or options.write_vectors:
        return vectors.run(options.write_vectors)
    if not options.captures:
        parser.error("no capture")
    try:
        segments = [segment for path in options.captures for segment in capture.read(path)]
        log = negotiation.KeyLog(options.keys)
    except (OSError, ValueError, capture.CaptureError) as error:
        print(f"decode: {error}", file=sys.stderr)
        return 2
    segments.sort(key=lambda segment: segment.time)
    told = report.Report()
    connections = connection.follow(trace.subflows_in(segments), log, told)
    show(connections, told, options)
    verified = [each for each in connections if each.agreed]
    if not verified and not told.failures:
        print("decode: no sealed connection in the captures", file=sys.stderr)
        return 1
    return 1 if told.failures else 0


def show(connections, told, options):
    for line in told.lines(options.json):
        if not options.quiet or "FAILED" in line:
            print(line)
    for each in connections:
        if not each.agreed:
            continue
        found = report.summary(each)
        print(json.dumps({"what": "summary", **found}) if options.json else f"connection {json.dumps(found)}")
        if options.streams:
            directory = pathlib.Path(options.streams)
            directory.mkdir(parents=True, exist_ok=True)
            for way, stream in each.streams.items():
                (directory / f"{each.number}-{way}").write_bytes(stream.text)
    text = "all verified" if not told.failures else f"{told.failures} failed"
    print(json.dumps({"what": "end", "failures": told.failures}) if options.json else f"decode: {text}")
