-- The negotiation and the handshake of a connection: docs/protocol.md, sections 1 and 2.

local bits, keys = require("plait_bits"), require("plait_keys")

local handshake = {}

handshake.SPECS = { [0x23] = "tcpcrypt with Curve25519", [0x21] = "tcpcrypt with P-256", [0xa0] = "TLS 1.3" }
local INIT1, INIT2 = "\x15\x10\x1a\x0e", "\x09\x71\x05\xe0"
local NONCE = 32
-- A handshake is never longer (section 2, "Resumption").
local LIMIT = 65536
local TLS_MESSAGES = { [1] = "ClientHello", [2] = "ServerHello" }
local TLS_RECORDS = { [20] = "ChangeCipherSpec", [21] = "Alert", [22] = "Handshake", [23] = "Application Data" }

-- Returns the encryption specs of a TCP-ENO option (RFC 8547): one with data takes the rest, unless a length is given.
function handshake.specs(eno)
    local found, at = {}, 3
    while at <= #eno do
        local value = eno:byte(at)
        at = at + 1
        if value >= 0x80 and value < 0xa0 then
            local length = value % 32 + 1
            value = eno:byte(at)
            at = at + 1 + length
        elseif value >= 0xa0 then
            at = #eno + 1
        end
        if value and value >= 0x20 then
            found[#found + 1] = value
        end
    end
    return found
end

-- Returns the prologue at the beginning of what an end has sent; nil if it is not complete, or none.
function handshake.prologue(said, side)
    local length = said:byte(1)
    if not length or length < (side == 0 and 4 or 20) or length > 63 or #said < 1 + length then
        return nil
    end
    return {
        raw = said:sub(1, 1 + length),
        capabilities = bits.number(said, 2, 4),
        instance = side == 1 and said:sub(6, 21) or nil,
    }
end

-- Returns the records of TLS that are complete, each with its name, place (from 0) and length; and the first messages in clear by their type.
function handshake.tls(said, from)
    local found, messages, clear, at = {}, {}, "", from + 1
    while at + 4 <= #said do
        local length = bits.number(said, at + 3, 2)
        local name = TLS_RECORDS[said:byte(at)]
        if not name or at + 4 + length > #said then
            break
        end
        local body = said:sub(at + 5, at + 4 + length)
        local record = { name = "TLS " .. name, at = at - 1, length = 5 + length }
        if said:byte(at) == 22 then
            record.name = TLS_MESSAGES[body:byte(1)] and "TLS " .. TLS_MESSAGES[body:byte(1)] or record.name
            clear = clear .. body
        end
        found[#found + 1] = record
        at = at + 5 + length
    end
    at = 1
    while at + 3 <= #clear do
        local length = bits.number(clear, at + 1, 3)
        if at + 3 + length <= #clear then
            -- A second ServerHello follows a HelloRetryRequest, and counts; the random of the client is the same in both of its messages.
            messages[clear:byte(at)] = clear:sub(at + 4, at + 3 + length)
        end
        at = at + 4 + length
    end
    return found, messages
end

-- Returns Init1 or Init2 if it is complete: bytes, nonce, ciphers.
local function init_of(said, from, magic)
    local length = bits.number(said, from + 5, 4)
    if said:sub(from + 1, from + 4) ~= magic or length > LIMIT or #said < from + length or length < 11 + NONCE then
        return nil
    end
    local raw = said:sub(from + 1, from + length)
    local at = magic == INIT1 and 10 + 2 * raw:byte(9) or 11
    return { raw = raw, nonce = raw:sub(at, at + NONCE - 1), cipher = bits.number(raw, 9, 2) }
end

-- Suite, master secret and the secret of the confirmation; nil and a reason without them. The reason is nil if bytes are missing.
local function of_tls(said, prologues, transcript, log)
    local _, client = handshake.tls(said[0], #prologues[0].raw)
    local _, server = handshake.tls(said[1], #prologues[1].raw)
    local hello, answer = client[1], server[2]
    if not hello or not answer or #hello < 34 or #answer < 38 then
        return nil
    end
    local session = answer:byte(35)
    local suite = keys.OF_TLS[bits.number(answer, 36 + session, 2)]
    local secret = log:secret("EXPORTER_SECRET", hello:sub(3, 34))
    if not suite then
        return nil, "a cipher suite of TLS without a suite of blocks"
    elseif not secret then
        return nil, "no EXPORTER_SECRET for this client random in the key log"
    end
    local ms = keys.master_of_tls(secret, transcript)
    if not ms then
        return nil, "the EXPORTER_SECRET in the key log has a wrong length"
    end
    return suite, ms, secret
end

local function of_tcpcrypt(said, prologues, transcript, log)
    local first, second = init_of(said[0], #prologues[0].raw, INIT1), init_of(said[1], #prologues[1].raw, INIT2)
    if not first or not second then
        return nil
    end
    local secret = log:secret("TCPCRYPT_SHARED_SECRET", first.nonce)
    if not keys.SUITES[second.cipher] then
        return nil, "a cipher of tcpcrypt without a suite of blocks"
    elseif not secret then
        return nil, "no TCPCRYPT_SHARED_SECRET for this nonce in the key log"
    end
    local ms = keys.master_of_tcpcrypt(secret, first.nonce, transcript, first.raw, second.raw)
    return second.cipher, ms, ms
end

-- Returns what both ends have agreed on, from the options of their SYNs and their first bytes: `suite`, `ms`, `confirmation`, `spec`, and
-- `prologues` by side; or nil and why not, if that does not depend on further bytes.
function handshake.agree(offers, flows, log)
    local chosen = handshake.specs(offers[1].eno)
    local spec = chosen[1]
    if #chosen ~= 1 or not handshake.SPECS[spec] then
        return nil, "B has not chosen a known encryption spec"
    end
    local said = { [0] = flows[0]:beginning(LIMIT), [1] = flows[1]:beginning(LIMIT) }
    local prologues = { [0] = handshake.prologue(said[0], 0), [1] = handshake.prologue(said[1], 1) }
    if not prologues[0] or not prologues[1] then
        return nil
    end
    local transcript = offers[0].capable .. offers[0].eno .. offers[1].capable .. offers[1].eno .. prologues[0].raw .. prologues[1].raw
    local take = spec == 0xa0 and of_tls or of_tcpcrypt
    local suite, ms, secret = take(said, prologues, transcript, log)
    if not suite then
        return nil, ms
    end
    return {
        suite = suite,
        ms = ms,
        spec = spec,
        prologues = prologues,
        confirmation = keys.confirmation(secret, transcript),
        session_id = string.char(spec) .. keys.xl(ms, "sid"),
    }
end

-- Returns the messages of a handshake that end within a range of offsets (from 1), for the protocol tree.
function handshake.messages(said, side, spec, from, till)
    local found, prologue = {}, handshake.prologue(said, side)
    if not prologue then
        return found
    end
    local all = { { name = "prologue", at = 0, length = #prologue.raw, prologue = prologue } }
    if spec == 0xa0 then
        for _, record in ipairs((handshake.tls(said, #prologue.raw))) do
            all[#all + 1] = record
        end
    elseif spec then
        local init = init_of(said, #prologue.raw, side == 0 and INIT1 or INIT2)
        if init then
            all[#all + 1] = { name = side == 0 and "Init1" or "Init2", at = #prologue.raw, length = #init.raw }
        end
    end
    for _, message in ipairs(all) do
        local last = message.at + message.length
        if last >= from and last < till then
            found[#found + 1] = message
        end
    end
    return found
end

return handshake
