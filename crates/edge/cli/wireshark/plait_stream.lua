-- One direction of a connection: its blocks by their numbers, what opens them, and what follows from their records.
--
-- The number of a block is the data sequence number of its first byte, counted from the initial one: the first block has number 1.
-- A block is opened as soon as the keys of its generation are known. Its records take effect in the order of numbers.

local bits, keys, records = require("plait_bits"), require("plait_keys"), require("plait_records")

local stream = {}

-- Blocks are so much longer than their plain text.
stream.OVERHEAD = 33
local CONTROL = 128
-- Blocks behind a gap, from which on the gap counts as bytes that were not captured.
local PATIENCE = 512
-- Open gaps beyond which the oldest is forgotten.
local GAPS = 256

local Stream = {}
Stream.__index = Stream

-- `connection` has the mixes of exchanges and is told of new tokens and generations.
function stream.new(way, connection)
    return setmetatable({
        way = way, connection = connection, generations = {}, next = 1, top = 1, blocks = {}, accepted = {}, ahead = 0, waiting = {},
        mixes = {}, gaps = {},
    }, Stream)
end

function Stream:take_keys(ms, suite)
    self.suite = suite
    self.generations = { keys.first_generation(self.way, ms) }
    self:begin(bits.wide(keys.xl(ms, "idsn " .. self.way:sub(1, 1), "", 8), 1))
end

-- The initial data sequence number, in two halves.
function Stream:begin(high, low)
    self.high, self.low = high, low
end

-- Returns the number of a data sequence number of which 4 or 8 bytes were sent. Without keys, the first block that was seen has number 1.
function Stream:relative(dsn)
    if not self.high then
        self:begin(bits.add(dsn.high, dsn.low, -1))
    end
    if dsn.bytes == 4 then
        local _, near = bits.add(self.high, self.low, self.top)
        return self.top + ((dsn.low - near + 2147483648) % 4294967296 - 2147483648)
    end
    return bits.difference(dsn.high, dsn.low, self.high, self.low)
end

-- Returns the 8 bytes of the data sequence number with this number.
function Stream:absolute(number)
    local high, low = bits.add(self.high, self.low, number)
    return bits.word(high) .. bits.word(low)
end

-- Returns the known generations with these six bits, the newest first.
function Stream:of_bits(header)
    local found = {}
    for n = #self.generations, 1, -1 do
        if self.generations[n].number % 64 == header % 64 then
            found[#found + 1] = self.generations[n]
        end
    end
    return found
end

-- Takes the bytes of a block, from a transmission in a frame. Returns the body, which has `tag` "ok", "failed" or "unchecked", `text`,
-- and `records` of a control block; and whether these bytes were seen before.
function Stream:take(number, data, place)
    local known = self.blocks[number] or {}
    self.blocks[number] = known
    -- Without the option tag, a block is the same in all its transmissions.
    local sealed = data:sub(2, -17)
    for _, body in ipairs(known) do
        if body.header == data:byte(1) and body.sealed == sealed then
            return body, true
        end
    end
    local body = {
        number = number, header = data:byte(1), sealed = sealed, length = #data, tag = "unchecked", frame = place.frame, subflow = place.subflow,
    }
    known[#known + 1] = body
    if self.suite then
        self:open(body)
    end
    return body, false
end

-- Notes where bytes were expected, for the analysis. Returns the gap in front of a block that comes too early.
function Stream:note(number, length, frame)
    local gap
    if number > self.top then
        gap = { from = self.top, till = number, left = number - self.top, frame = frame }
        self.gaps[#self.gaps + 1] = gap
        if #self.gaps > GAPS then
            table.remove(self.gaps, 1)
        end
    else
        for n = #self.gaps, 1, -1 do
            local open = self.gaps[n]
            if number < open.till and number + length > open.from then
                open.left = open.left - length
                if open.left <= 0 then
                    open.filled = frame
                    table.remove(self.gaps, n)
                end
            end
        end
    end
    self.top = math.max(self.top, number + length)
    return gap
end

function Stream:open(body)
    local candidates = self:of_bits(body.header)
    if #candidates == 0 then
        self.waiting[#self.waiting + 1] = body
        return
    end
    body.tag = "failed"
    for _, generation in ipairs(candidates) do
        local text = generation:open(self.suite, body.header, self:absolute(body.number), body.sealed)
        if text then
            body.tag, body.text, body.generation = "ok", text, generation.number
            if body.header - body.header % 64 == CONTROL then
                body.records, body.wrong = records.parse(text)
            end
            self:accept(body)
            return
        end
    end
end

-- Takes an opened block to those whose records take effect in order.
function Stream:accept(body)
    if body.number < self.next then
        return
    end
    if not self.accepted[body.number] then
        self.accepted[body.number] = body
        self.ahead = self.ahead + 1
    end
    self:advance()
end

-- Lets the records of the next blocks take effect.
function Stream:advance()
    while true do
        local body = self.accepted[self.next]
        if not body and self.ahead > PATIENCE then
            body = self:skip()
        end
        if not body or not self:can_take(body) then
            return
        end
        self.accepted[self.next] = nil
        self.ahead = self.ahead - 1
        self.next = self.next + body.length
        for _, record in ipairs(body.records or {}) do
            self:take_record(record)
        end
    end
end

function Stream:skip()
    local first
    for number in pairs(self.accepted) do
        first = first and math.min(first, number) or number
    end
    if first then
        self.next = first
        return self.accepted[first]
    end
end

-- Whether the secrets of all exchanges that a block mixes are known.
function Stream:can_take(body)
    for _, record in ipairs(body.records or {}) do
        if record.name == "MIX" and not self.connection.mixes[record.subflow .. record.exchange] then
            return false
        end
    end
    return true
end

function Stream:take_record(record)
    if record.name == "MIX" then
        self.mixes[#self.mixes + 1] = self.connection.mixes[record.subflow .. record.exchange]
    elseif record.name == "TOKEN" then
        self.connection:take_token(record.token, self.way:sub(1, 1))
    elseif record.name == "KEY_UPDATE" then
        local last = self.generations[#self.generations]
        self.generations[#self.generations + 1] = last:following(self.mixes)
        self.mixes = {}
        if #self.generations > 4 then
            self.generations[#self.generations - 4]:shrink()
        end
        local waiting = self.waiting
        self.waiting = {}
        for _, body in ipairs(waiting) do
            self:open(body)
        end
        self.connection:retry()
    end
end

return stream
