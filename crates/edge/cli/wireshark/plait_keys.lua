-- The key schedule of docs/protocol.md, sections 2, 3, 4 and 7, and key logs. Secrets and names of 8 bytes are strings of bytes.

local bits, hash, ciphers = require("plait_bits"), require("plait_hash"), require("plait_ciphers")

local char = string.char

local keys = {}

-- Suites of blocks, and those of TLS 1.3 that lead to them.
keys.SUITES = {
    [0x0001] = { name = "AES-128-GCM", cipher = ciphers.AES_GCM, length = 16 },
    [0x0002] = { name = "AES-256-GCM", cipher = ciphers.AES_GCM, length = 32 },
    [0x0010] = { name = "ChaCha20-Poly1305", cipher = ciphers.CHACHA20_POLY1305, length = 32 },
}
keys.OF_TLS = { [0x1301] = 0x0001, [0x1302] = 0x0002, [0x1303] = 0x0010 }
-- Flags in what an option tag covers.
keys.DATA_FIN, keys.MAPPING, keys.DATA_ACK = 1, 2, 4

local function info_of(label, context, length)
    return bits.short(length) .. char(#label) .. label .. char(#context) .. context
end

function keys.xl(secret, label, context, length)
    return hash.expand(secret, info_of("mptcpsec " .. label, context or "", length or 32), length or 32)
end

-- The master secret of a handshake by TLS 1.3: the exporter of RFC 8446, section 7.5. nil if the secret has no known length.
function keys.master_of_tls(secret, transcript)
    local algorithm = ({ [32] = hash.SHA256, [48] = hash.SHA384 })[#secret]
    if not algorithm then
        return nil
    end
    local function labelled(from, label, context, length)
        return hash.expand(from, info_of("tls13 " .. label, context, length), length, algorithm)
    end
    local context = algorithm.digest(hash.sha256(transcript))
    local derived = labelled(secret, "EXPERIMENTAL mptcpsec v2 master", algorithm.digest(""), #secret)
    return labelled(derived, "exporter", context, 32)
end

function keys.master_of_tcpcrypt(shared, nonce, transcript, init1, init2)
    return hash.expand(hash.hmac(nonce, transcript .. init1 .. init2 .. shared), "\x4d", 32)
end

-- Returns the last 16 bytes of B's handshake. `secret` is the exporter secret, or the master secret of tcpcrypt.
function keys.confirmation(secret, transcript)
    return hash.expand(hash.hmac(hash.sha256(transcript), secret), "mptcpsec confirmation", 16)
end

-- All secrets of one direction ("ab" or "ba") in one generation.
local Generation = {}
Generation.__index = Generation

local function generation(way, number, data, option)
    return setmetatable({ way = way, number = number, data = data, option = option, names = {} }, Generation)
end

function keys.first_generation(way, ms)
    local self = generation(way, 0, keys.xl(ms, "data " .. way), keys.xl(ms, "opt " .. way))
    self.path, self.fast_close = keys.xl(ms, "path " .. way), keys.xl(ms, "fclose " .. way:sub(1, 1), "", 8)
    if way == "ab" then
        self.joins = { a = keys.xl(ms, "join a"), b = keys.xl(ms, "join b") }
    end
    return self
end

-- Returns the generation that follows, with the secrets of the exchanges in between.
function Generation:following(mixes)
    local data, option = keys.xl(self.data, "ku"), keys.xl(self.option, "ku")
    if #mixes > 0 then
        local all = table.concat(mixes)
        data, option = hash.hmac(data, all), hash.hmac(option, all)
    end
    local new = generation(self.way, self.number + 1, data, option)
    new.path, new.fast_close = keys.xl(data, "path"), keys.xl(data, "fclose", "", 8)
    if self.way == "ab" then
        new.joins = { a = keys.xl(data, "join a"), b = keys.xl(data, "join b") }
    end
    return new
end

-- Returns the plain text of a block without its option tag; nil if it does not verify. `dsn` has 8 bytes.
function Generation:open(suite, header, dsn, sealed)
    if not self.cipher then
        local known, number = keys.SUITES[suite], bits.short(suite)
        self.cipher = known.cipher.new(keys.xl(self.data, "key", number, known.length))
        self.iv = keys.xl(self.data, "iv", number, 12)
    end
    local mask, nonce = char(header - header % 64) .. "\0\0\0" .. dsn, {}
    for n = 1, 12 do
        nonce[n] = char(bits.bxor(self.iv:byte(n), mask:byte(n)))
    end
    return self.cipher(table.concat(nonce), char(header), sealed)
end

-- Forgets what only blocks need; they are rare once the next generation has begun.
function Generation:shrink()
    self.cipher = nil
end

-- Returns the option tag under the option key of a subflow.
function Generation:tag(subflow, message, length)
    if not self.names[subflow] then
        self.names[subflow] = keys.xl(self.option, "sf", subflow)
    end
    return hash.blake3_keyed(self.names[subflow], message):sub(1, length)
end

-- Returns the text of a PATHKEY, nil if it does not verify. `offered` are the fresh bytes of the offer that it answers.
function Generation:open_path_key(subflow, offered, message)
    local context = subflow .. message:sub(1, 1) .. message:sub(3, 6) .. offered .. message:sub(7, 22)
    local secret = keys.xl(self.path, "path", context, 44)
    return ciphers.AES_GCM.new(secret:sub(1, 32))(secret:sub(33), message:sub(1, 22), message:sub(23))
end

-- Returns HMAC_I (20 bytes) and HMAC_R (8 bytes) of a join.
function Generation:join(initiator, body)
    local responder = initiator == "a" and "b" or "a"
    return hash.hmac(self.joins[initiator], "JA" .. body):sub(1, 20), hash.hmac(self.joins[responder], "JB" .. body):sub(1, 8)
end

-- Returns M of section 4; its fields are in `of`, numbers of 64 bits as 8 bytes.
function keys.tagged(class, of)
    local zero = ("\0"):rep(8)
    return char(1, class, of.flags or 0, of.header) .. (of.dsn or zero) .. (of.offset or zero) .. bits.short(of.length or 0)
        .. "\0\0" .. (of.data_ack or zero) .. "\0\0" .. (of.data_tag or "")
end

function keys.mix(subflow, number, k_mlkem, k_x25519, offer, answer)
    local name = "mptcpsec v2 path mix" .. subflow .. number
    return hash.hmac(("\0"):rep(32), name .. k_mlkem .. k_x25519 .. offer .. answer)
end

function keys.subflow_name(hmac_i, hmac_r)
    local i, r = math.floor(bits.number(hmac_i, 1, 4) / 2), math.floor(bits.number(hmac_r, 1, 4) / 2)
    return bits.word(math.floor(i / 2)) .. bits.word(i % 2 * 2147483648 + r)
end

-- The name in the option keys of a SYN with this MP_JOIN.
function keys.syn_name(join)
    return "\x80\0" .. char(join:byte(3) % 16, join:byte(4)) .. join:sub(9, 12)
end

-- The token and the initial data sequence number (two halves) of a key of RFC 8684.
function keys.of_plain_key(key)
    local digest = hash.sha256(key)
    return digest:sub(1, 4), bits.wide(digest, 25)
end

-- A key log, which is read again when a secret is missing and the file has grown.
local KeyLog = {}
KeyLog.__index = KeyLog

function keys.key_log(path)
    return setmetatable({ path = path, secrets = {}, shares = {}, size = 0 }, KeyLog)
end

function KeyLog:read()
    local file = self.path ~= "" and io.open(self.path, "rb")
    if not file then
        return false
    end
    local size = file:seek("end") or 0
    if size == self.size then
        file:close()
        return false
    end
    self.size = size
    file:seek("set", 0)
    for line in file:lines() do
        local label, name, secret = line:match("^(%S+)%s+(%x+)%s+(%x+)%s*$")
        name, secret = name and bits.unhex(name), secret and bits.unhex(secret)
        if label == "MPTCPSEC_SHARE" and name and secret and #secret == 76 then
            self.shares[name .. secret:sub(1, 12)] = { secret:sub(13, 44), secret:sub(45, 76) }
        elseif label and name and secret then
            self.secrets[label .. " " .. name] = secret
        end
    end
    file:close()
    return true
end

function KeyLog:secret(label, name)
    local key = label .. " " .. name
    return self.secrets[key] or self:read() and self.secrets[key] or nil
end

-- Returns both agreements of an exchange; `name` is the session id, the subflow and the number.
function KeyLog:share(name)
    return self.shares[name] or self:read() and self.shares[name] or nil
end

return keys
