"""What was found, in the order of time: lines for people, or JSON, an object a line."""

import json


class Report:
    def __init__(self):
        self.events, self.failures = [], 0

    def tell(self, time, interface, subflow, way, what, fields):
        self.events.append((time, len(self.events), interface, subflow, way, what, fields))

    def fail(self, time, interface, subflow, way, why):
        self.failures += 1
        self.tell(time, interface, subflow, way, "FAILED", {"why": why})

    def lines(self, as_json):
        """One line for each thing."""
        events = sorted(self.events, key=lambda event: event[:2])
        start = events[0][0] if events else 0
        for time, _, interface, subflow, way, what, fields in events:
            connection = subflow.connection.number if subflow.connection else None
            seconds = (time - start) / 10**9
            if as_json:
                place = {"time": seconds, "connection": connection, "interface": interface}
                place |= {"subflow": subflow.number, "from": way[0].upper(), "what": what}
                yield json.dumps(place | {"fields": fields})
                continue
            text = ", ".join(f"{name} {shown(value)}" for name, value in fields.items())
            where = f"{connection if connection is not None else '-'}.{subflow.number} {interface:8}"
            yield f"{seconds:12.6f} {where} {way[0].upper()}>{way[1].upper()} {what}{': ' if text else ''}{text}"


def shown(value):
    if isinstance(value, (list, tuple)):
        return "/".join(shown(each) or "none" for each in value)
    if isinstance(value, int) and value >= 1 << 40:
        return f"{value:x}"
    return str(value)


def summary(connection):
    """What was verified of a connection."""
    streams = connection.streams
    ends = [f"{address}:{port}" for address, port in connection.first.ends]
    return {
        "connection": connection.number,
        "ends": ends,
        "blocks": {way: stream.opened for way, stream in streams.items()},
        "bytes": {way: len(stream.text) for way, stream in streams.items()},
        "generations": {way: stream.generations[-1].number for way, stream in streams.items()},
        "records": {way: kinds_of(stream) for way, stream in streams.items()},
        "subflows": len(connection.subflows),
        **connection.counts,
    }


def kinds_of(stream):
    kinds = {}
    for name, _ in stream.records:
        kinds[name] = kinds.get(name, 0) + 1
    return kinds
