-- From segments to connections. Each segment is taken once, in the order of the capture; what it means is kept for its frame, so that the
-- protocol tree can be drawn again.

local bits, flow, keys = require("plait_bits"), require("plait_flow"), require("plait_keys")
local connection, handshake = require("plait_connection"), require("plait_handshake")

local tracker = {}

local SYN, ACK = 2, 16
local MPTCP, ENO = 30, 69
local CAPABLE, JOIN, DSS, FAST_CLOSE, EXPERIMENTAL = 0, 1, 2, 7, 15
-- Shortest header of a block in a SYN: DSN and length.
local SYN_HEADER = 10

local Tracker = {}
Tracker.__index = Tracker

-- `log` is the key log.
function tracker.new(log)
    return setmetatable({ log = log, connections = {}, subflows = {}, tokens = {}, orphans = {}, frames = {} }, Tracker)
end

-- Returns the options in a TCP header as tables of `kind`, `at` (from 0 in `data`) and the whole `data` of each; a malformed one ends the list.
function tracker.options(data)
    local found, at = {}, 1
    while at <= #data do
        local kind, length = data:byte(at), 1
        if kind == 0 then
            break
        elseif kind ~= 1 then
            length = data:byte(at + 1) or 0
            if length < 2 or at + length - 1 > #data then
                break
            end
            found[#found + 1] = { kind = kind, at = at - 1, data = data:sub(at, at + length - 1) }
        end
        at = at + length
    end
    return found
end

-- Returns the subtype of an option of Multipath TCP; nil for other options.
function tracker.subtype(option)
    return option.kind == MPTCP and #option.data > 2 and bits.rshift(option.data:byte(3), 4) or nil
end

local function first_of(options, subtype)
    for _, option in ipairs(options) do
        if tracker.subtype(option) == subtype then
            return option.data
        end
    end
end

-- What a SYN or SYN/ACK offers.
local function offer_in(options)
    local offer = { capable = first_of(options, CAPABLE) }
    for _, option in ipairs(options) do
        if option.kind == ENO and not offer.eno then
            offer.eno = option.data
        end
    end
    if offer.capable and #offer.capable < 4 then
        offer.capable = nil
    end
    offer.version = offer.capable and offer.capable:byte(3) % 16
    return offer
end

-- Returns a DSS option (RFC 8684, section 3.3): `ack`, `dsn`, each with `high`, `low` and `bytes`, `offset`, `length`, `fin`, and where each is;
-- nil if it is cut.
function tracker.dss(data)
    if #data < 4 then
        return nil
    end
    local flags, at = data:byte(4), 5
    local function take(is_wide)
        local from = at
        at = at + (is_wide and 8 or 4)
        if is_wide then
            local high, low = bits.wide(data, from)
            return { high = high, low = low, bytes = 8, at = from - 1 }
        end
        return { high = 0, low = bits.number(data, from, 4), bytes = 4, at = from - 1 }
    end
    local dss = { fin = bits.extract(flags, 4, 1) == 1 }
    if bits.extract(flags, 0, 1) == 1 then
        dss.ack = take(bits.extract(flags, 1, 1) == 1)
    end
    if bits.extract(flags, 2, 1) == 1 then
        dss.dsn = take(bits.extract(flags, 3, 1) == 1)
        dss.place, dss.offset, dss.length = at - 1, bits.number(data, at, 4), bits.number(data, at + 4, 2)
        at = at + 6
    end
    return at - 1 <= #data and dss or nil
end

local function new_subflow(segment, number)
    local function nothing()
        return { blocks = 0, bytes = 0, repeated = 0, run = 0 }
    end
    return {
        number = number, source = segment.source, destination = segment.destination,
        flows = { [0] = flow.new(segment.seq) }, offers = { [0] = offer_in(segment.options) },
        join = { [0] = first_of(segment.options, JOIN) }, carried = { [0] = nothing(), [1] = nothing() }, syn_data = {},
    }
end

-- Takes a token: joins with it belong to this connection, and were sent to this side of it.
function Tracker:take_token(token, its, side)
    self.tokens[token] = { connection = its, side = side }
    local orphans = self.orphans[token]
    self.orphans[token] = nil
    for _, subflow in ipairs(orphans or {}) do
        self:adopt(subflow)
    end
end

function Tracker:adopt(subflow)
    local token = subflow.join[0]:sub(5, 8)
    local known = self.tokens[token]
    if not known then
        self.orphans[token] = self.orphans[token] or {}
        table.insert(self.orphans[token], subflow)
        return
    end
    local its = known.connection
    subflow.connection, subflow.initiator = its, known.side == "a" and "b" or "a"
    subflow.index = #its.subflows
    its.subflows[#its.subflows + 1] = subflow
end

-- Whether a segment belongs to a known subflow.
function Tracker:knows(segment)
    return self.subflows[segment.source .. " " .. segment.destination] ~= nil
end

-- Takes a segment: `frame`, `source`, `destination`, `seq`, `flags`, `options`, `payload`. Returns what it means; nil for
-- segments of other connections.
function Tracker:take(segment)
    local known = self.subflows[segment.source .. " " .. segment.destination]
    local is_syn = bits.band(segment.flags, SYN) ~= 0
    if is_syn and bits.band(segment.flags, ACK) == 0 then
        known = self:take_syn(segment, known)
    end
    if not known then
        return nil
    end
    local subflow, side = known.subflow, known.side
    local view = { subflow = subflow, side = side, frame = segment.frame, blocks = {}, path_keys = {}, messages = {}, checks = {} }
    self.frames[segment.frame] = view
    if is_syn then
        self:take_answer(segment, view)
    elseif subflow.flows[side] and subflow.flows[1 - side] then
        self:take_segment(segment, view)
    end
    return view
end

-- A first SYN: a new subflow, unless it is repeated.
function Tracker:take_syn(segment, known)
    if known and known.side == 0 and known.subflow.flows[0].isn == segment.seq then
        return known
    end
    local there, back = segment.source .. " " .. segment.destination, segment.destination .. " " .. segment.source
    self.subflows[there], self.subflows[back] = nil, nil
    local subflow = new_subflow(segment, #self.connections)
    local join = subflow.join[0]
    if subflow.offers[0].capable then
        local its = connection.new(#self.connections, subflow, self)
        self.connections[#self.connections + 1] = its
    elseif join and #join == 12 then
        self:adopt(subflow)
    else
        return nil
    end
    self.subflows[there] = { subflow = subflow, side = 0 }
    self.subflows[back] = { subflow = subflow, side = 1 }
    return self.subflows[there]
end

-- The options and the data of SYNs.
function Tracker:take_answer(segment, view)
    local subflow, side = view.subflow, view.side
    if side == 1 and not subflow.flows[1] then
        subflow.flows[1] = flow.new(segment.seq)
        subflow.offers[1], subflow.join[1] = offer_in(segment.options), first_of(segment.options, JOIN)
        if subflow.join[0] and not subflow.offers[0].capable then
            view.join = subflow.connection and subflow.connection:take_join(subflow, nil)
        elseif subflow.connection then
            subflow.connection:answered(subflow.offers)
        end
    end
    if subflow.join[0] and #segment.payload >= 8 and subflow.connection and subflow.connection.kind == "sealed" then
        self:take_syn_data(segment, view)
    end
end

-- Blocks in the SYN of a join (section 4).
function Tracker:take_syn_data(segment, view)
    local data, at = segment.payload, 9
    local ack_high, ack_low = bits.wide(data, 1)
    local ack = { high = ack_high, low = ack_low, bytes = 8 }
    local name = view.side == 0 and #view.subflow.join[0] == 12 and keys.syn_name(view.subflow.join[0]) or nil
    while at + SYN_HEADER - 1 <= #data do
        local high, low = bits.wide(data, at)
        local length = bits.number(data, at + 8, 2)
        if length < 33 or at + SYN_HEADER + length - 1 > #data then
            break
        end
        local sent = { name = name, offset = 0, dsn = { high = high, low = low, bytes = 8 }, ack = ack }
        local bytes = data:sub(at + SYN_HEADER, at + SYN_HEADER + length - 1)
        local block = view.subflow.connection:take_block(view.subflow, view.side, sent, bytes, segment.frame)
        block.at, block.in_syn = at + SYN_HEADER - 1, true
        view.blocks[#view.blocks + 1] = block
        at = at + SYN_HEADER + length
    end
end

-- A segment behind the SYNs.
function Tracker:take_segment(segment, view)
    local subflow, side = view.subflow, view.side
    local its, this = subflow.connection, subflow.flows[side]
    if not its or its.kind == "none" then
        return
    end
    view.offset = this:offset_of(segment.seq)
    if #segment.payload > 0 then
        view.wrong = this:add(view.offset, segment.payload)
    end
    self:take_options(segment, view)
    if subflow == its.first and its.kind == "sealed" then
        its:advance(segment.frame)
        if #segment.payload > 0 and view.offset >= 1 and (not this.begin or view.offset < this.begin) then
            local till = math.min(view.offset + #segment.payload, this.begin or math.huge)
            view.handshake_till = till
            view.messages = handshake.messages(this:beginning(65536), side, its.spec, view.offset, till)
        end
        local confirmation = its.confirmation
        if confirmation and confirmation.frame == segment.frame then
            view.confirmation = confirmation
        end
    end
    for _, each in ipairs(this:completed()) do
        if each.what.dsn then
            local block = its:take_block(subflow, side, each.what, each.data, segment.frame)
            each.what.whole, block.data_length = segment.frame, #each.data
            view.blocks[#view.blocks + 1] = block
        else
            each.what.whole = segment.frame
            view.path_keys[#view.path_keys + 1] = its:take_path_key(subflow, side, each.data, segment.frame)
        end
    end
end

-- The options of a segment of a connection.
function Tracker:take_options(segment, view)
    local subflow, side = view.subflow, view.side
    local its, this, tag, dss = subflow.connection, subflow.flows[view.side], nil, nil
    for _, option in ipairs(segment.options) do
        local data, subtype = option.data, tracker.subtype(option)
        if subtype == JOIN and #data == 24 and side == 0 and subflow.join[0] then
            view.join = its:take_join(subflow, data)
        elseif subtype == FAST_CLOSE and #data == 12 then
            view.fast_close = its:take_fast_close(subflow, side, data:sub(5))
        elseif subtype == CAPABLE and #data >= 20 and side == 0 then
            self:take_third(segment, view, data)
        elseif subtype == DSS then
            dss = dss or tracker.dss(data)
        elseif subtype == EXPERIMENTAL and its.kind == "sealed" then
            local low = data:byte(3) % 16
            if low == 0 and #data == 12 then
                tag = data:sub(4)
            elseif low == 1 and #data == 9 then
                view.path_key = this:path_key(this:unwrap(bits.number(data, 4, 4)), bits.number(data, 8, 2))
            elseif (low == 2 or low == 3) and #data == 20 then
                view.checks[#view.checks + 1] = its:take_check(subflow, side, low, data:sub(4))
            elseif low == 4 and #data == 22 then
                view.report = { next = bits.number(data, 5, 4), count = bits.number(data, 9, 4), delay = bits.number(data, 13, 2) }
            end
        end
    end
    if dss then
        self:take_dss(view, dss, tag)
    end
end

-- MP_CAPABLE of the third segment of a plain or scrambled connection: the keys of both ends, and perhaps a mapping (RFC 8684, section 3.1).
function Tracker:take_third(segment, view, data)
    local its = view.subflow.connection
    its:take_plain_key("a", data:sub(5, 12))
    local _, direction = its:way(view.subflow, view.side)
    if #data >= 22 and #segment.payload > 0 and its.kind ~= "sealed" and direction.high then
        local high, low = bits.add(direction.high, direction.low, 1)
        local mapping = { key = "third", offset = 1, length = bits.number(data, 21, 2), dsn = { high = high, low = low, bytes = 8 } }
        view.mapping = view.subflow.flows[view.side]:map(mapping)
    end
end

function Tracker:take_dss(view, dss, tag)
    local subflow, this = view.subflow, view.subflow.flows[view.side]
    local length = dss.length and dss.length - (dss.fin and 1 or 0)
    if not dss.dsn or length < 1 then
        view.ack = subflow.connection:take_ack(subflow, view.side, dss, tag)
        return
    end
    local ack = dss.ack and bits.word(dss.ack.high) .. bits.word(dss.ack.low) or ""
    view.mapping = this:map({
        key = ("%d %d %d %s %s"):format(dss.dsn.high, dss.dsn.low, length, tostring(dss.fin), ack),
        offset = this:unwrap(dss.offset), length = length, dsn = dss.dsn, fin = dss.fin, ack = dss.ack,
    })
end

return tracker
