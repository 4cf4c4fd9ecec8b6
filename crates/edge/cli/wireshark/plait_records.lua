-- Control records: docs/protocol.md, section 4 and the sections that it names.

local bits = require("plait_bits")

local records = {}

records.PADDING = 9
records.CAPABILITIES = { LIFE = 0, REFUSED = 1, LOOK = 2, TICKET = 3, DATAGRAMS = 4, DATE = 5 }
records.REASONS = {
    [0] = "closed", "reset", "timed out", "nothing verified it", "interference", "displaced", "path is gone",
}
records.REFUSALS = { [0] = "other", "not authorized", "full", "draining", "expired", "too many of this client" }

-- Kind: name and fields. A field has the name of its protocol field and its length; `address`, `ticket`, `destination` and
-- `datagram` have lengths of their own.
local LAYOUTS = {
    [0x01] = { "EOF" },
    [0x02] = { "KEY_UPDATE" },
    [0x03] = { "MIX", { "subflow", 8 }, { "exchange", 4 } },
    [0x04] = { "MAX_DATA", { "limit", 8 } },
    [0x05] = { "ADD_ADDR", { "address_id", 1 }, { "address" }, { "port", 2 } },
    [0x06] = { "REMOVE_ADDR", { "address_id", 1 } },
    [0x07] = { "PRIO", { "subflow", 8 }, { "backup", 1 } },
    [0x08] = { "TOKEN", { "token", 4 } },
    [0x09] = { "PADDING" },
    [0x0a] = { "OPENING", { "opening", 16 }, { "paths", 1 } },
    [0x0b] = { "OPENED", { "token", 4 } },
    [0x0c] = { "REQUIRE", { "paths", 1 } },
    [0x0d] = { "TICKET", { "ticket" } },
    [0x0e] = { "LOOK" },
    [0x0f] = { "SEEN", { "subflow", 8 }, { "address" }, { "port", 2 }, { "mss", 2 }, { "options", 1 } },
    [0x10] = { "GONE", { "subflow", 8 }, { "gone", 1 } },
    [0x11] = { "VOID", { "subflow", 8 }, { "exchange", 4 } },
    [0x12] = { "REFUSED", { "refused", 1 } },
    [0x14] = { "AGREED", { "subflow", 8 }, { "exchange", 4 } },
    [0x15] = { "OPEN_FLOW", { "flow", 4 }, { "destination" } },
    [0x16] = { "CLOSE_FLOW", { "flow", 4 }, { "sent", 8 } },
    [0x17] = { "DATAGRAM", { "flow", 4 }, { "ecn", 1 }, { "datagram" } },
    [0x18] = { "DATE", { "date", 8 } },
}

records.NAMES = {}
for kind, layout in pairs(LAYOUTS) do
    records.NAMES[kind] = layout[1]
end

-- The place and the length of a field's value at `at`, and where the next field begins; nil if there is no such field.
local function measure(field, text, at)
    local name, length = field[1], field[2]
    if name == "address" then
        length = ({ [4] = 4, [6] = 16 })[text:byte(at)]
        at = at + 1
    elseif name == "ticket" then
        length = text:byte(at)
        at = at + 1
        if length and (length < 1 or length > 192) then
            return nil
        end
    end
    if name == "destination" then
        length = text:byte(at)
        at = at + 1
    elseif name == "datagram" then
        length = at + 1 <= #text and bits.number(text, at, 2) or nil
        at = at + 2
    end
    if not length or at + length - 1 > #text then
        return nil
    end
    return at, length, at + length
end

-- Returns the records of a control block, and what is wrong with the rest, if anything. A record has `kind`, `name`, `at` (from 0) and `length`
-- in the text, and `fields`, each with `name`, `at`, `length` and its bytes as `value`. Padding is one record.
function records.parse(text)
    local found, at = {}, 1
    while at <= #text do
        local kind, start = text:byte(at), at
        local layout = LAYOUTS[kind]
        if not layout then
            return found, ("record %02x does not exist"):format(kind)
        end
        at = at + 1
        local record = { kind = kind, name = layout[1], at = start - 1, fields = {} }
        if kind == records.PADDING then
            at = text:find("[^\9]", at) or #text + 1
        end
        for n = 2, #layout do
            local from, length, following = measure(layout[n], text, at)
            if not from then
                return found, "the block ends within a record of kind " .. layout[1]
            end
            local value = text:sub(from, from + length - 1)
            record.fields[n - 1] = { name = layout[n][1], at = from - 1, length = length, value = value }
            record[layout[n][1]] = value
            at = following
        end
        record.length = at - start
        found[#found + 1] = record
    end
    return found, nil
end

-- Returns a value as text: an address, a reason, a number, or bytes.
function records.shown(field)
    local value, name = field.value, field.name
    if name == "address" and #value == 4 then
        return ("%d.%d.%d.%d"):format(value:byte(1, 4))
    elseif name == "address" then
        return (bits.hex(value):gsub("%x%x%x%x", "%0:"):sub(1, -2))
    elseif name == "gone" then
        return records.REASONS[value:byte()] or tostring(value:byte())
    elseif name == "refused" then
        return records.REFUSALS[value:byte()] or records.REFUSALS[0]
    elseif name == "destination" then
        return value
    elseif name == "datagram" then
        return ("%d bytes"):format(#value)
    elseif name == "sent" or name == "subflow" or name == "limit" or name == "opening" or name == "ticket" or name == "token" then
        return bits.hex(value)
    end
    return ("%d"):format(bits.number(value, 1, #value))
end

return records
