-- The bytes of one direction of a subflow, by their offsets: the first byte behind the SYN has offset 1.

local flow = {}

-- Segments farther ahead than this are none of the flow.
local WINDOW = 16777216
-- Pieces beyond which those that lie more than a window behind are forgotten.
local MANY = 8192
-- Mappings whose bytes are not complete; beyond that the oldest is forgotten. Some bytes are in no capture.
local WAITING = 256

local Flow = {}
Flow.__index = Flow

function flow.new(isn)
    -- Pieces do not overlap and are in order. `top` is the end of the last one.
    return setmetatable({ isn = isn, top = 1, pieces = {}, mappings = {}, waiting = {}, path_keys = {} }, Flow)
end

-- Returns the offset of which these are the lower 32 bits, nearest to the last bytes.
function Flow:unwrap(low)
    return self.top + ((low - self.top + 2147483648) % 4294967296 - 2147483648)
end

function Flow:offset_of(seq)
    return self:unwrap((seq - self.isn) % 4294967296)
end

-- The index of the first piece that ends behind an offset.
function Flow:search(offset)
    local low, high = 1, #self.pieces + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local piece = self.pieces[middle]
        if piece.at + #piece.data > offset then
            high = middle
        else
            low = middle + 1
        end
    end
    return low
end

-- Takes bytes. Returns nil, or the word for what is wrong with them; then they are not taken.
function Flow:add(offset, data)
    local finish = offset + #data
    if offset < 1 then
        return nil
    end
    if finish > self.top + WINDOW then
        return "far"
    end
    local gaps, cursor, n = {}, offset, self:search(offset)
    local first = n
    while cursor < finish do
        local piece = self.pieces[n]
        if not piece or piece.at >= finish then
            gaps[#gaps + 1] = { at = cursor, data = data:sub(cursor - offset + 1) }
            break
        end
        if piece.at > cursor then
            gaps[#gaps + 1] = { at = cursor, data = data:sub(cursor - offset + 1, piece.at - offset) }
            cursor = piece.at
        end
        local till = math.min(finish, piece.at + #piece.data)
        if piece.data:sub(cursor - piece.at + 1, till - piece.at) ~= data:sub(cursor - offset + 1, till - offset) then
            return "changed"
        end
        cursor, n = till, n + 1
    end
    for _, gap in ipairs(gaps) do
        while self.pieces[first] and self.pieces[first].at < gap.at do
            first = first + 1
        end
        table.insert(self.pieces, first, gap)
    end
    self.top = math.max(self.top, finish)
    if #self.pieces > MANY then
        self:forget()
    end
    return nil
end

-- Makes one piece of those that adjoin, at most of about 64 KiB.
local function joined(pieces)
    local out, parts, at, length = {}, {}, pieces[1].at, 0
    for _, piece in ipairs(pieces) do
        if piece.at ~= at + length or length > 65536 then
            out[#out + 1] = { at = at, data = table.concat(parts) }
            parts, at, length = {}, piece.at, 0
        end
        parts[#parts + 1], length = piece.data, length + #piece.data
    end
    out[#out + 1] = { at = at, data = table.concat(parts) }
    return out
end

function Flow:forget()
    local kept = {}
    for n = self:search(self.top - WINDOW), #self.pieces do
        kept[#kept + 1] = self.pieces[n]
    end
    self.pieces = joined(kept)
end

-- Returns the bytes at an offset, or nil if one of them was not seen.
function Flow:bytes(offset, length)
    if offset < 1 or offset + length > self.top then
        return nil
    end
    local parts, cursor, n = {}, offset, self:search(offset)
    while cursor < offset + length do
        local piece = self.pieces[n]
        if not piece or piece.at > cursor then
            return nil
        end
        local till = math.min(offset + length, piece.at + #piece.data)
        parts[#parts + 1] = piece.data:sub(cursor - piece.at + 1, till - piece.at)
        cursor, n = till, n + 1
    end
    return table.concat(parts)
end

-- Returns the bytes from the first one on, up to the first that was not seen, at most up to `limit`.
function Flow:beginning(limit)
    local parts, cursor = {}, 1
    for _, piece in ipairs(self.pieces) do
        if piece.at ~= cursor or cursor > limit then
            break
        end
        parts[#parts + 1], cursor = piece.data, cursor + #piece.data
    end
    return table.concat(parts):sub(1, limit)
end

function Flow:wait_for(what)
    self.waiting[#self.waiting + 1] = what
    if #self.waiting > WAITING then
        table.remove(self.waiting, 1)
    end
end

-- Returns the mapping that is like this one, and whether it is new.
function Flow:map(mapping)
    local known = self.mappings[mapping.offset] or {}
    self.mappings[mapping.offset] = known
    for _, each in ipairs(known) do
        if each.key == mapping.key then
            return each, false
        end
    end
    known[#known + 1] = mapping
    self:wait_for(mapping)
    if not self.begin or mapping.offset < self.begin then
        self.begin = mapping.offset
    end
    return mapping, true
end

-- Takes the place of a PATHKEY; returns it.
function Flow:path_key(offset, length)
    local known = self.path_keys[offset]
    if not known then
        known = { offset = offset, length = length }
        self.path_keys[offset] = known
        self:wait_for(known)
        if not self.begin or offset < self.begin then
            self.begin = offset
        end
    end
    return known
end

-- Returns the mappings and PATHKEYs of which all bytes are there now, with the bytes; each once.
function Flow:completed()
    local found, left = {}, {}
    for _, each in ipairs(self.waiting) do
        local data = self:bytes(each.offset, each.length)
        if data then
            found[#found + 1] = { what = each, data = data }
        else
            left[#left + 1] = each
        end
    end
    self.waiting = left
    return found
end

return flow
