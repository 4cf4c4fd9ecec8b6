-- SHA-256 and SHA-384 (FIPS 180-4), HMAC (RFC 2104), HKDF-Expand (RFC 5869), and keyed BLAKE3 of at most one chunk.

local bits = require("plait_bits")

local band, bnot, bxor = bits.band, bits.bnot, bits.bxor
local rrotate, rshift = bits.rrotate, bits.rshift
local byte, char = string.byte, string.char

local hash = {}

-- The first 64 bits behind the point of the cube roots of the first 80 primes: upper and lower halves.
-- SHA-256 has the first 64 of the upper halves.
local UPPER = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    0xca273ece, 0xd186b8c7, 0xeada7dd6, 0xf57d4f7f, 0x06f067aa, 0x0a637dc5, 0x113f9804, 0x1b710b35,
    0x28db77f5, 0x32caab7b, 0x3c9ebe0a, 0x431d67c4, 0x4cc5d4be, 0x597f299c, 0x5fcb6fab, 0x6c44198c,
}
local LOWER = {
    0xd728ae22, 0x23ef65cd, 0xec4d3b2f, 0x8189dbbc, 0xf348b538, 0xb605d019, 0xaf194f9b, 0xda6d8118,
    0xa3030242, 0x45706fbe, 0x4ee4b28c, 0xd5ffb4e2, 0xf27b896f, 0x3b1696b1, 0x25c71235, 0xcf692694,
    0x9ef14ad2, 0x384f25e3, 0x8b8cd5b5, 0x77ac9c65, 0x592b0275, 0x6ea6e483, 0xbd41fbd4, 0x831153b5,
    0xee66dfab, 0x2db43210, 0x98fb213f, 0xbeef0ee4, 0x3da88fc2, 0x930aa725, 0xe003826f, 0x0a0e6e70,
    0x46d22ffc, 0x5c26c926, 0x5ac42aed, 0x9d95b3df, 0x8baf63de, 0x3c77b2a8, 0x47edaee6, 0x1482353b,
    0x4cf10364, 0xbc423001, 0xd0f89791, 0x0654be30, 0xd6ef5218, 0x5565a910, 0x5771202a, 0x32bbd1b8,
    0xb8d2d0c8, 0x5141ab53, 0xdf8eeb99, 0xe19b48a8, 0xc5c95a63, 0xe3418acb, 0x7763e373, 0xd6b2b8a3,
    0x5defb2fc, 0x43172f60, 0xa1f0ab72, 0x1a6439ec, 0x23631e28, 0xde82bde9, 0xb2c67915, 0xe372532b,
    0xea26619c, 0x21c0c207, 0xcde0eb1e, 0xee6ed178, 0x72176fba, 0xa2c898a6, 0xbef90dae, 0x131c471b,
    0x23047d84, 0x40c72493, 0x15c9bebc, 0x9c100d4c, 0xcb3e42b6, 0xfc657e2a, 0x3ad6faec, 0x4a475817,
}
local START_256 = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
}
local START_384_UPPER = {
    0xcbbb9d5d, 0x629a292a, 0x9159015a, 0x152fecd8, 0x67332667, 0x8eb44a87, 0xdb0c2e0d, 0x47b5481d,
}
local START_384_LOWER = {
    0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4,
}

-- Writes the words of 32 bits in big-endian bytes from `at` on into `words`.
local function load_words(data, at, count, words)
    for n = 1, count do
        local a, b, c, d = byte(data, at, at + 3)
        words[n] = a * 16777216 + b * 65536 + c * 256 + d
        at = at + 4
    end
end

-- Appends the end mark and the length, so that whole blocks result.
local function padded(data, block, length_bytes)
    local zeros = (block - 1 - length_bytes - #data) % block + (length_bytes - 8)
    local length = #data * 8
    local upper = math.floor(length / 4294967296)
    return data .. "\128" .. ("\0"):rep(zeros) .. bits.word(upper) .. bits.word(length % 4294967296)
end

local function compress_256(state, w)
    for n = 17, 64 do
        local x, y = w[n - 15], w[n - 2]
        local s0 = bxor(rrotate(x, 7), rrotate(x, 18), rshift(x, 3))
        local s1 = bxor(rrotate(y, 17), rrotate(y, 19), rshift(y, 10))
        w[n] = (w[n - 16] + s0 + w[n - 7] + s1) % 4294967296
    end
    local a, b, c, d, e, f, g, h =
        state[1], state[2], state[3], state[4], state[5], state[6], state[7], state[8]
    for n = 1, 64 do
        local s1 = bxor(rrotate(e, 6), rrotate(e, 11), rrotate(e, 25))
        local choice = bxor(band(e, f), band(bnot(e), g))
        local t1 = h + s1 + choice + UPPER[n] + w[n]
        local s0 = bxor(rrotate(a, 2), rrotate(a, 13), rrotate(a, 22))
        local majority = bxor(band(a, b), band(a, c), band(b, c))
        h, g, f, e, d, c, b, a = g, f, e, (d + t1) % 4294967296, c, b, a, (t1 + s0 + majority) % 4294967296
    end
    for n, value in ipairs({ a, b, c, d, e, f, g, h }) do
        state[n] = (state[n] + value) % 4294967296
    end
end

function hash.sha256(data)
    local state, words = {}, {}
    for n = 1, 8 do
        state[n] = START_256[n]
    end
    data = padded(data, 64, 8)
    for at = 1, #data, 64 do
        load_words(data, at, 16, words)
        compress_256(state, words)
    end
    for n = 1, 8 do
        state[n] = bits.word(state[n])
    end
    return table.concat(state)
end

-- The two halves of a number of 64 bits, rotated to the right by fewer than 32.
local function rotated(upper, lower, n)
    local shift, back = 2 ^ n, 2 ^ (32 - n)
    local from_upper, from_lower = upper % shift, lower % shift
    return (upper - from_upper) / shift + from_lower * back, (lower - from_lower) / shift + from_upper * back
end

-- The exclusive or of three rotations; a third one that `is_shift` drops the bits that leave.
local function mixed(upper, lower, first, second, third, is_shift)
    local function turn(n)
        if n >= 32 then
            return rotated(lower, upper, n - 32)
        end
        return rotated(upper, lower, n)
    end
    local a_upper, a_lower = turn(first)
    local b_upper, b_lower = turn(second)
    local c_upper, c_lower = turn(third)
    if is_shift then
        c_upper = rshift(upper, third)
    end
    return bxor(a_upper, b_upper, c_upper), bxor(a_lower, b_lower, c_lower)
end

-- Returns the two halves of a sum of which both parts may be too large.
local function carried(upper, lower)
    local rest = lower % 4294967296
    return (upper + (lower - rest) / 4294967296) % 4294967296, rest
end

local function compress_512(upper, lower, data, at)
    local wu, wl = {}, {}
    for n = 1, 16 do
        wu[n], wl[n] = bits.wide(data, at + 8 * n - 8)
    end
    for n = 17, 80 do
        local s0u, s0l = mixed(wu[n - 15], wl[n - 15], 1, 8, 7, true)
        local s1u, s1l = mixed(wu[n - 2], wl[n - 2], 19, 61, 6, true)
        wu[n], wl[n] = carried(wu[n - 16] + s0u + wu[n - 7] + s1u, wl[n - 16] + s0l + wl[n - 7] + s1l)
    end
    local u, l = {}, {}
    for n = 1, 8 do
        u[n], l[n] = upper[n], lower[n]
    end
    for n = 1, 80 do
        local s1u, s1l = mixed(u[5], l[5], 14, 18, 41)
        local s0u, s0l = mixed(u[1], l[1], 28, 34, 39)
        local cu = bxor(band(u[5], u[6]), band(bnot(u[5]), u[7]))
        local cl = bxor(band(l[5], l[6]), band(bnot(l[5]), l[7]))
        local mu = bxor(band(u[1], u[2]), band(u[1], u[3]), band(u[2], u[3]))
        local ml = bxor(band(l[1], l[2]), band(l[1], l[3]), band(l[2], l[3]))
        local tu, tl = carried(u[8] + s1u + cu + UPPER[n] + wu[n], l[8] + s1l + cl + LOWER[n] + wl[n])
        for m = 8, 2, -1 do
            u[m], l[m] = u[m - 1], l[m - 1]
        end
        u[5], l[5] = carried(u[5] + tu, l[5] + tl)
        u[1], l[1] = carried(tu + s0u + mu, tl + s0l + ml)
    end
    for n = 1, 8 do
        upper[n], lower[n] = carried(upper[n] + u[n], lower[n] + l[n])
    end
end

function hash.sha384(data)
    local upper, lower = {}, {}
    for n = 1, 8 do
        upper[n], lower[n] = START_384_UPPER[n], START_384_LOWER[n]
    end
    data = padded(data, 128, 16)
    for at = 1, #data, 128 do
        compress_512(upper, lower, data, at)
    end
    local out = {}
    for n = 1, 6 do
        out[n] = bits.word(upper[n]) .. bits.word(lower[n])
    end
    return table.concat(out)
end

-- A hash with the length of the blocks that HMAC pads its keys to.
hash.SHA256 = { digest = hash.sha256, block = 64, length = 32 }
hash.SHA384 = { digest = hash.sha384, block = 128, length = 48 }

local function each_xor(key, value)
    return (key:gsub(".", function(c)
        return char(bxor(byte(c), value))
    end))
end

function hash.hmac(key, data, algorithm)
    algorithm = algorithm or hash.SHA256
    if #key > algorithm.block then
        key = algorithm.digest(key)
    end
    key = key .. ("\0"):rep(algorithm.block - #key)
    local inner = algorithm.digest(each_xor(key, 0x36) .. data)
    return algorithm.digest(each_xor(key, 0x5c) .. inner)
end

-- HKDF-Expand (RFC 5869, section 2.3).
function hash.expand(secret, info, length, algorithm)
    local out, block, n = "", "", 0
    while #out < length do
        n = n + 1
        block = hash.hmac(secret, block .. info .. char(n), algorithm)
        out = out .. block
    end
    return out:sub(1, length)
end

-- BLAKE3: the places in the state that each step mixes, and the order of the words in the next round.
local STEPS = {
    { 1, 5, 9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 }, { 4, 8, 12, 16 },
    { 1, 6, 11, 16 }, { 2, 7, 12, 13 }, { 3, 8, 9, 14 }, { 4, 5, 10, 15 },
}
local ORDER = { 3, 7, 4, 11, 8, 1, 5, 14, 2, 12, 13, 6, 10, 15, 16, 9 }
local CHUNK_START, CHUNK_END, ROOT, KEYED = 1, 2, 8, 16

-- Reads little-endian words; what is missing at the end counts as zeros.
local function little_words(data, at, count)
    local words = {}
    for n = 1, count do
        local a, b, c, d = byte(data, at, at + 3)
        words[n] = (a or 0) + (b or 0) * 256 + (c or 0) * 65536 + (d or 0) * 16777216
        at = at + 4
    end
    return words
end

local function compress_blake3(chaining, words, length, flags)
    local v = {}
    for n = 1, 8 do
        v[n] = chaining[n]
    end
    for n = 1, 4 do
        v[8 + n] = START_256[n]
    end
    v[13], v[14], v[15], v[16] = 0, 0, length, flags
    for _ = 1, 7 do
        for n = 1, 8 do
            local step = STEPS[n]
            local ia, ib, ic, id = step[1], step[2], step[3], step[4]
            local a, b, c, d = v[ia], v[ib], v[ic], v[id]
            a = (a + b + words[2 * n - 1]) % 4294967296
            d = rrotate(bxor(d, a), 16)
            c = (c + d) % 4294967296
            b = rrotate(bxor(b, c), 12)
            a = (a + b + words[2 * n]) % 4294967296
            d = rrotate(bxor(d, a), 8)
            c = (c + d) % 4294967296
            v[ia], v[ib], v[ic], v[id] = a, rrotate(bxor(b, c), 7), c, d
        end
        local following = {}
        for n = 1, 16 do
            following[n] = words[ORDER[n]]
        end
        words = following
    end
    for n = 1, 8 do
        v[n] = bxor(v[n], v[n + 8])
    end
    return v
end

-- Returns the 32 bytes of keyed BLAKE3 of at most 1024 bytes.
function hash.blake3_keyed(key, data)
    local chaining = little_words(key, 1, 8)
    for at = 1, math.max(#data, 1), 64 do
        local length = math.min(#data - at + 1, 64)
        local flags = KEYED + (at == 1 and CHUNK_START or 0)
        if at + 64 > #data then
            flags = flags + CHUNK_END + ROOT
        end
        chaining = compress_blake3(chaining, little_words(data, at, 16), length, flags)
    end
    local out = {}
    for n = 1, 8 do
        out[n] = bits.word(chaining[n]):reverse()
    end
    return table.concat(out)
end

return hash
