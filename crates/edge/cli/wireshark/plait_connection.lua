-- One connection: its handshake, subflows, both directions, shares of the keys, and what is sent beside the stream.
--
-- Everything that is verified is a table with `tag`: "ok", "failed", or "unchecked" while its keys are not known. What becomes known later
-- changes these tables, so that a second pass over the capture shows it.

local bits, hash, keys, stream = require("plait_bits"), require("plait_hash"), require("plait_keys"), require("plait_stream")
local handshake, records = require("plait_handshake"), require("plait_records")

local connection = {}

local Connection = {}
Connection.__index = Connection

-- Length of the text of an offer and of an answer of section 7.
local TEXTS = { [1] = 1249, [2] = 1153 }
-- Frames after which a secret that is missing is looked for again.
local RETRY = 256

-- `world` has the key log, and finds joins by token.
function connection.new(number, first, world)
    local self = setmetatable({
        number = number, first = first, subflows = { first }, world = world, mixes = {}, exchanges = {}, waiting = {}, kind = "opening",
        plain_keys = {},
    }, Connection)
    self.streams = { ab = stream.new("ab", self), ba = stream.new("ba", self) }
    first.initiator, first.name, first.connection, first.index = "a", ("\0"):rep(8), self, 0
    return self
end

-- Returns the direction in which a side of a subflow sends, and the stream of it and of the other direction.
function Connection:way(subflow, side)
    local way = (subflow.initiator == "a") == (side == 0) and "ab" or "ba"
    return way, self.streams[way], self.streams[way:reverse()]
end

-- Takes the SYN/ACK of the first subflow: what the connection is.
function Connection:answered(offers)
    local first, answer = offers[0], offers[1]
    if not answer or not answer.capable then
        self.kind = "none"
    elseif answer.version == 2 and answer.eno and first.version == 2 and first.eno then
        self.kind = "sealed"
        self.spec = handshake.specs(answer.eno)[1]
    elseif answer.version == 2 then
        self.kind = "scrambled"
    else
        self.kind = "plain"
    end
    self.version = answer and answer.version or nil
    if #(answer and answer.capable or "") >= 12 then
        self:take_plain_key("b", answer.capable:sub(5, 12))
    end
end

-- Takes a key of Multipath TCP that an end has sent in clear.
function Connection:take_plain_key(side, key)
    self.plain_keys[side] = self.plain_keys[side] or key
    if self.streams[side == "a" and "ab" or "ba"].high or self.kind == "sealed" then
        return
    end
    local token, high, low = keys.of_plain_key(key)
    self.streams[side == "a" and "ab" or "ba"]:begin(high, low)
    self:take_token(token, side)
end

function Connection:take_token(token, side)
    self.world:take_token(token, self, side)
end

-- Derives the keys as soon as both ends have said enough, and examines the confirmation.
function Connection:advance(frame)
    if self.kind ~= "sealed" then
        return
    end
    local first = self.first
    if not self.agreed and (self.retry_at or 0) <= frame then
        local agreed, why = handshake.agree(first.offers, first.flows, self.world.log)
        self.why_not = why
        if not agreed then
            self.retry_at = why and frame + RETRY
            return
        end
        self.agreed = agreed
        self.confirmation = { tag = "unchecked", value = agreed.confirmation }
        self.streams.ab:take_keys(agreed.ms, agreed.suite)
        self.streams.ba:take_keys(agreed.ms, agreed.suite)
        self:take_token(keys.xl(agreed.ms, "token a", "", 4), "a")
        self:take_token(keys.xl(agreed.ms, "token b", "", 4), "b")
        self:retry()
    end
    if self.confirmation and self.confirmation.tag == "unchecked" then
        local flow = first.flows[1]
        local finish = flow.begin or flow.top
        local last = flow:bytes(finish - 16, 16)
        if last == self.agreed.confirmation then
            self.confirmation.tag, self.confirmation.frame, self.confirmation.offset = "ok", frame, finish - 16
        elseif flow.begin and last then
            self.confirmation.tag, self.confirmation.frame, self.confirmation.offset = "failed", frame, finish - 16
        end
    end
end

-- Has an item verified now, or as soon as keys are known: `check` returns whether the tag is right; nil if that is not known yet, and "later"
-- if it is wrong under the known generations, and a later one may be the right one.
function Connection:verify(item, check)
    item.tag = "unchecked"
    local right
    if self.agreed then
        right = check()
    end
    if right == nil or right == "later" then
        self.waiting[#self.waiting + 1] = { item, check }
    end
    if right ~= nil then
        item.tag = right == true and "ok" or "failed"
    end
end

-- Verifies again what has waited for keys.
function Connection:retry()
    local waiting = self.waiting
    self.waiting = {}
    for _, each in ipairs(waiting) do
        self:verify(each[1], each[2])
    end
end

-- Whether an option tag verifies under a known generation; nil if none has these bits or the subflow has no name yet.
local function has_tag(direction, subflow_name, header, message, tag)
    if not subflow_name then
        return nil
    end
    local candidates = direction:of_bits(header)
    if #candidates == 0 then
        return nil
    end
    for _, generation in ipairs(candidates) do
        if generation:tag(subflow_name, message, #tag) == tag then
            return true
        end
    end
    return false
end

-- Returns the absolute 8 bytes of an acknowledgment of the other direction.
local function acknowledged(back, ack)
    return ack and back:absolute(back:relative(ack))
end

-- Takes a block whose bytes are complete. `sent` has the name of the subflow in the option keys, `offset`, `length` (with a DATA_FIN), `fin`,
-- `ack` and `dsn`. Returns the transmission for the tree.
function Connection:take_block(subflow, side, sent, data, frame)
    local way, direction, back = self:way(subflow, side)
    local number = direction:relative(sent.dsn)
    local length = #data
    local block = { way = way, number = number, length = length, frame = frame, subflow = subflow, fin = sent.fin, offset = sent.offset }
    local body, is_known
    if self.kind == "sealed" then
        if length < stream.OVERHEAD then
            block.wrong = "shorter than a block"
            return block
        end
        body, is_known = direction:take(number, data, { frame = frame, subflow = subflow })
        block.body, block.option_tag = body, {}
        local flags = keys.MAPPING + (sent.fin and keys.DATA_FIN or 0) + (sent.ack and keys.DATA_ACK or 0)
        local high, low = bits.add(0, 0, sent.offset)
        local tag, data_tag, header = data:sub(-16), data:sub(-32, -17), data:byte(1)
        self:verify(block.option_tag, function()
            local message = keys.tagged(0, {
                flags = flags, header = header, dsn = direction:absolute(number), offset = bits.word(high) .. bits.word(low),
                length = length + (sent.fin and 1 or 0), data_ack = acknowledged(back, sent.ack), data_tag = data_tag,
            })
            return has_tag(direction, sent.name or subflow.name, header, message, tag)
        end)
    else
        local known = direction.blocks[number]
        body, is_known = known or { frame = frame, subflow = subflow, length = length }, known ~= nil
        direction.blocks[number] = body
    end
    if is_known then
        block.first_frame, block.is_reinjected = body.frame, body.subflow ~= subflow
    else
        block.gap = direction:note(number, length, frame)
    end
    self:count(subflow, side, block, direction)
    return block
end

-- Counts what a path has carried.
function Connection:count(subflow, side, block, direction)
    local carried = subflow.carried[side]
    carried.blocks, carried.bytes = carried.blocks + 1, carried.bytes + block.length
    if block.first_frame then
        carried.repeated = carried.repeated + block.length
    end
    if direction.run_of ~= subflow or direction.run_till ~= block.number then
        direction.run_of, direction.run = subflow, 0
    end
    direction.run, direction.run_till = direction.run + block.length, block.number + block.length
    carried.run = math.max(carried.run, direction.run)
    block.path_bytes, block.path_run = carried.bytes, direction.run
end

-- Takes a Data-ACK, with a DATA_FIN or not, that comes without a block. Returns the item for the tree.
function Connection:take_ack(subflow, side, dss, tag)
    local _, direction, back = self:way(subflow, side)
    local item = { number = dss.ack and back:relative(dss.ack), fin = dss.fin and dss.dsn and direction:relative(dss.dsn) }
    if self.kind ~= "sealed" or not tag then
        return item
    end
    local fin, header = item.fin, tag:byte(1) % 64
    item.generation = header
    local flags = (dss.ack and keys.DATA_ACK or 0) + (fin and keys.MAPPING + keys.DATA_FIN or 0)
    self:verify(item, function()
        local message = keys.tagged(1, {
            flags = flags, header = tag:byte(1), dsn = fin and direction:absolute(fin), length = fin and 1 or 0,
            data_ack = acknowledged(back, dss.ack),
        })
        return has_tag(direction, subflow.name, header, message, tag:sub(2))
    end)
    return item
end

-- Takes CHECK: `kind` is 2 for a question, 3 for an answer; `option` has generation, value and tag.
function Connection:take_check(subflow, side, kind, option)
    local _, direction = self:way(subflow, side)
    local item = { kind = kind, value = option:sub(2, 9), generation = option:byte(1) }
    if self.kind == "sealed" then
        self:verify(item, function()
            local message = keys.tagged(kind, { header = item.generation, dsn = item.value })
            return has_tag(direction, subflow.name, item.generation, message, option:sub(10))
        end)
    end
    return item
end

function Connection:take_fast_close(subflow, side, key)
    local _, direction = self:way(subflow, side)
    local item = {}
    if self.kind == "sealed" then
        self:verify(item, function()
            for _, generation in ipairs(direction.generations) do
                if generation.fast_close == key then
                    return true
                end
            end
            return "later"
        end)
    end
    return item
end

-- Verifies the HMACs of a join, and names the subflow. Returns the item; `last` is the option of the third segment, or nil.
function Connection:take_join(subflow, last)
    local syn, answer = subflow.join[0], subflow.join[1]
    local item = { last = last ~= nil }
    if not answer or #syn ~= 12 or #answer ~= 16 then
        return item
    elseif self.kind ~= "sealed" then
        return self:take_plain_join(subflow, last, item)
    end
    local flags = string.char(syn:byte(3) % 16, syn:byte(4), answer:byte(3) % 16, answer:byte(4))
    local body = syn:sub(9, 12) .. answer:sub(13, 16) .. flags .. syn:sub(5, 8)
    self:verify(item, function()
        local generations = self.streams.ab.generations
        for n = #generations, 1, -1 do
            local hmac_i, hmac_r = generations[n]:join(subflow.initiator, body)
            if hmac_r == answer:sub(5, 12) then
                if not subflow.name then
                    subflow.name, item.generation = keys.subflow_name(hmac_i, hmac_r), generations[n].number
                    item.name = subflow.name
                end
                return last == nil or last:sub(5) == hmac_i
            end
        end
        return "later"
    end)
    return item
end

-- The same where both keys of Multipath TCP were sent in clear (RFC 8684, section 3.2).
function Connection:take_plain_join(subflow, last, item)
    local initiator = subflow.initiator
    local mine, its = self.plain_keys[initiator], self.plain_keys[initiator == "a" and "b" or "a"]
    local syn, answer = subflow.join[0], subflow.join[1]
    if mine and its then
        local nonce_i, nonce_r = syn:sub(9, 12), answer:sub(13, 16)
        local hmac_i, hmac_r = hash.hmac(mine .. its, nonce_i .. nonce_r), hash.hmac(its .. mine, nonce_r .. nonce_i)
        local is_right = hmac_r:sub(1, 8) == answer:sub(5, 12) and (last == nil or last:sub(5) == hmac_i:sub(1, 20))
        item.tag = is_right and "ok" or "failed"
    end
    return item
end

-- Takes a PATHKEY whose bytes are complete. Returns the item.
function Connection:take_path_key(subflow, side, message, frame)
    local item = {
        kind = message:byte(1), generation = message:byte(2), exchange = message:sub(3, 6), length = #message, frame = frame, tag = "unchecked",
    }
    if self.kind ~= "sealed" or #message < 38 then
        item.tag = #message < 38 and "failed" or "unchecked"
        return item
    end
    local _, direction = self:way(subflow, side)
    self:verify(item, function()
        local name = subflow.name and subflow.name .. item.exchange
        local offered = item.kind == 2 and name and self.exchanges[name] or nil
        local candidates = direction:of_bits(item.generation)
        if not name or #candidates == 0 or item.kind == 2 and not offered then
            return nil
        end
        for _, generation in ipairs(candidates) do
            local text = generation:open_path_key(subflow.name, offered and offered.fresh or "", message)
            if text and #text == TEXTS[item.kind] then
                item.path = text:byte(1)
                self:take_share(item, name, message:sub(7, 22), text, subflow)
                return true
            end
        end
        return false
    end)
    return item
end

function Connection:take_share(item, name, fresh, text, subflow)
    if item.kind == 1 then
        self.exchanges[name] = { fresh = fresh, text = text }
        self:retry()
        return
    end
    local agreed = self.world.log:share(self.agreed.session_id .. name)
    if not agreed then
        item.wrong = "the key log has no MPTCPSEC_SHARE of this exchange: the next generation cannot be opened"
        return
    end
    self.mixes[name] = keys.mix(subflow.name, item.exchange, agreed[1], agreed[2], self.exchanges[name].text, text)
    self.streams.ab:advance()
    self.streams.ba:advance()
end

-- Returns the names of the capabilities in a prologue.
function connection.capabilities(set)
    local names = {}
    for name, bit in pairs(records.CAPABILITIES) do
        if bits.extract(set, bit, 1) == 1 then
            names[#names + 1] = name
        end
    end
    table.sort(names)
    return table.concat(names, " ")
end

return connection
