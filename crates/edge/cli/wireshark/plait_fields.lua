-- The fields of the protocol tree, by their names without "plait.", and the remarks of the analysis.

local records = require("plait_records")

local fields = { all = {}, experts = {} }

local TAGS = { [0] = "not checked", "ok", "failed" }
fields.OF_TAG = { unchecked = 0, ok = 1, failed = 2 }

local function add(kind, name, title, ...)
    fields.all[name] = ProtoField[kind]("plait." .. name, title, ...)
end

local function tag(name, title)
    add("uint8", name, title, base.DEC, TAGS)
end

add("uint32", "connection", "Connection")
add("uint8", "version", "Version of Multipath TCP")
add("string", "protection", "Protection")
add("string", "direction", "Direction")
add("uint32", "subflow", "Subflow")
add("uint64", "subflow.name", "Name of the subflow in the keys", base.HEX)
add("uint64", "offset", "Offset in the subflow")

add("string", "handshake.kind", "Handshake")
add("string", "handshake.suite", "Suite")
add("string", "handshake.message", "Handshake message")
add("string", "handshake.capabilities", "Capabilities")
add("bytes", "handshake.instance", "Instance of the server")
add("string", "handshake.bytes", "Handshake bytes")
add("bytes", "handshake.confirmation", "Confirmation")
tag("handshake.confirmation.tag", "Confirmation")
add("uint8", "eno.spec", "Encryption spec", base.HEX)

add("uint64", "mapping.number", "Mapped block")
add("uint64", "mapping.offset", "Offset of the mapping")
add("uint32", "mapping.length", "Length of the mapping")
add("framenum", "mapping.frame", "Block complete in")

add("uint64", "block.number", "Block number")
add("uint32", "block.length", "Block length")
add("uint8", "block.type", "Block type", base.DEC, { [0] = "data", [2] = "control" })
add("uint8", "block.generation", "Key generation")
tag("block.tag", "Tag of the block")
tag("block.option_tag", "Option tag")
add("bool", "block.fin", "DATA_FIN")
add("bool", "block.in_syn", "In a SYN")
add("bool", "block.reinjected", "Reinjected")
add("bool", "block.retransmitted", "Sent again on the same subflow")
add("framenum", "block.first", "First seen in")
add("uint32", "data.length", "Application bytes")
add("bytes", "data", "Application data")

add("uint8", "record.kind", "Control record", base.HEX, records.NAMES)
add("string", "record.name", "Record")
add("string", "record.value", "Value")
add("uint64", "record.subflow", "Subflow", base.HEX)
add("uint32", "record.exchange", "Exchange")
add("uint64", "record.limit", "Limit", base.HEX)
add("uint8", "record.address_id", "Address id")
add("string", "record.address", "Address")
add("uint16", "record.port", "Port")
add("bool", "record.backup", "Backup")
add("uint32", "record.token", "Token", base.HEX)
add("bytes", "record.opening", "Id of the opening")
add("uint8", "record.paths", "Required paths")
add("bytes", "record.ticket", "Ticket")
add("uint16", "record.mss", "MSS")
add("uint8", "record.options", "Options", base.HEX)
add("uint64", "record.date", "Seconds since 1970")
add("uint8", "record.gone", "Reason", base.DEC, records.REASONS)
add("uint32", "record.flow", "Flow")
add("string", "record.destination", "Destination")
add("uint64", "record.sent", "Datagrams sent", base.HEX)
add("uint8", "record.ecn", "ECN codepoint")
add("bytes", "record.datagram", "Payload")
add("uint8", "record.refused", "Reason", base.DEC, records.REFUSALS)

add("uint64", "ack.number", "Data-ACK")
add("uint64", "ack.fin", "Number of the DATA_FIN")
tag("ack.tag", "Tag of the Data-ACK")
add("uint8", "check.kind", "CHECK", base.DEC, { [2] = "question", [3] = "answer" })
add("uint64", "check.value", "Value", base.HEX)
tag("check.tag", "Tag of CHECK")
tag("join.tag", "HMACs of the join")
add("uint32", "join.token", "Token", base.HEX)
tag("fastclose.tag", "Key of MP_FASTCLOSE")

add("uint8", "pathkey.kind", "PATHKEY", base.DEC, { [1] = "offer", [2] = "answer" })
add("uint32", "pathkey.exchange", "Exchange")
add("uint8", "pathkey.generation", "Key generation")
add("uint8", "pathkey.path", "Path")
add("uint64", "pathkey.offset", "Offset of a PATHKEY")
add("uint32", "pathkey.length", "Length")
tag("pathkey.tag", "Tag of the PATHKEY")

add("uint32", "datagram.flow", "Flow of a datagram")
add("uint32", "datagram.counter", "Counter")
add("uint8", "datagram.generation", "Key generation")
add("uint8", "datagram.ecn", "ECN codepoint")
add("uint32", "datagram.number", "Number on the connection")
add("uint8", "datagram.piece", "Piece", base.HEX)
add("uint32", "report.next", "REPORT: counter after the highest")
add("uint32", "report.count", "Datagrams that have arrived")
add("uint16", "report.delay", "Delay in units of 100 us")

add("uint64", "path.bytes", "Bytes of blocks on this subflow so far")
add("uint64", "path.run", "Consecutive bytes on this subflow so far")

fields.experts.failed = ProtoExpert.new("plait.analysis.failed", "Does not verify", expert.group.CHECKSUM, expert.severity.ERROR)
fields.experts.malformed = ProtoExpert.new("plait.analysis.malformed", "Malformed", expert.group.MALFORMED, expert.severity.WARN)
fields.experts.reinjected =
    ProtoExpert.new("plait.analysis.reinjected", "Reinjected block", expert.group.SEQUENCE, expert.severity.NOTE)
fields.experts.gap = ProtoExpert.new("plait.analysis.gap", "Gap of block numbers", expert.group.SEQUENCE, expert.severity.NOTE)
fields.experts.changed =
    ProtoExpert.new("plait.analysis.changed", "Bytes differ from those sent before", expert.group.SEQUENCE, expert.severity.WARN)
fields.experts.no_keys = ProtoExpert.new("plait.analysis.no_keys", "Not decrypted", expert.group.DECRYPTION, expert.severity.NOTE)

-- Returns the fields and remarks as lists, for the protocol.
function fields.list()
    local all, experts = {}, {}
    for _, field in pairs(fields.all) do
        all[#all + 1] = field
    end
    for _, each in pairs(fields.experts) do
        experts[#experts + 1] = each
    end
    return all, experts
end

return fields
