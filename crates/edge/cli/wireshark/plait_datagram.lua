-- Datagrams beside the stream: docs/protocol.md, section 9. Their headers are in clear; they are not decrypted.

local bits = require("plait_bits")

local datagram = {}

local TAG = 16

-- Whether these bytes, behind the header of UDP, are a datagram.
function datagram.is_one(data)
    local first = data:byte(1) or 0
    return first >= 4 and first < 16
end

-- Returns the header: `flow`, `counter`, `generation`, `ecn`, `number`, `piece`, `length`; nil if it is malformed.
function datagram.head(data)
    if #data < 7 + TAG or data:byte(1) > 7 or not datagram.is_one(data) then
        return nil
    end
    local flags = data:byte(2)
    local size = ({ [0] = 1, 2, 4 })[bits.rshift(data:byte(7), 6)]
    if not size then
        return nil
    end
    local at = 7 + size
    local prefix = bits.rshift(data:byte(7), 6)
    local head = {
        ecn = data:byte(1) % 4, generation = flags % 64, counter = bits.number(data, 3, 4),
        flow = bits.number(data, 7, size) - prefix * 2 ^ (8 * size - 2),
    }
    if bits.band(flags, 128) ~= 0 then
        head.number, at = bits.number(data, at, 4), at + 4
    end
    if bits.band(flags, 64) ~= 0 then
        head.piece, at = data:byte(at), at + 1
    end
    head.length = at - 1
    return #data >= head.length + TAG and head or nil
end

-- Draws a datagram. Returns the words for the column of information.
function datagram.draw(proto, fields, root, range)
    local tree = root:add(proto, range)
    local head = datagram.head(range:bytes():raw())
    if not head then
        tree:append_text(", a datagram with a malformed header")
        return "datagram, malformed"
    end
    tree:append_text((", datagram of flow %d"):format(head.flow))
    local header = range:range(0, head.length)
    for _, name in ipairs({ "flow", "counter", "generation", "ecn", "number", "piece" }) do
        if head[name] then
            tree:add(fields["datagram." .. name], header, head[name])
        end
    end
    return ("datagram of flow %d, %d bytes"):format(head.flow, range:len() - head.length - TAG)
end

return datagram
