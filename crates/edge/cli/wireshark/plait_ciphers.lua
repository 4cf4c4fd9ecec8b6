-- The ciphers of blocks: AES-GCM (FIPS 197, SP 800-38D) and ChaCha20-Poly1305 (RFC 8439). They only decrypt.
--
-- `new` of a cipher takes a key and returns a function (nonce, associated data, cipher text with tag) that returns the plain text, or nil
-- if the tag does not verify. Times are not constant: the keys are in a file beside the capture.

local bits = require("plait_bits")

local band, bxor, extract = bits.band, bits.bxor, bits.extract
local lrotate, rrotate, rshift = bits.lrotate, bits.rrotate, bits.rshift
local byte, char, concat = string.byte, string.char, table.concat

local ciphers = {}

-- The multiplication by x in the field of AES.
local function double(value)
    return value < 128 and value * 2 or bxor(value * 2, 0x11b)
end

-- The substitution of FIPS 197, section 5.1.1, from logarithms to the base 3.
local function substitution()
    local power, logarithm, value = {}, {}, 1
    for n = 0, 254 do
        power[n], logarithm[value] = value, n
        value = bxor(value, double(value))
    end
    local table_of = {}
    for n = 0, 255 do
        local inverse = n == 0 and 0 or power[(255 - logarithm[n]) % 255]
        local image = inverse
        for _ = 1, 4 do
            inverse = inverse < 128 and inverse * 2 or inverse * 2 - 255
            image = bxor(image, inverse)
        end
        table_of[n] = bxor(image, 0x63)
    end
    return table_of
end

local S = substitution()
-- Substitution and mixing of columns at once, for the byte of each row.
local T0, T1, T2, T3 = {}, {}, {}, {}
for n = 0, 255 do
    local s = S[n]
    local twice = double(s)
    local word = twice * 16777216 + s * 65536 + s * 256 + bxor(twice, s)
    T0[n], T1[n], T2[n], T3[n] = word, rrotate(word, 8), rrotate(word, 16), rrotate(word, 24)
end

local function substituted(word)
    return S[extract(word, 24, 8)] * 16777216 + S[extract(word, 16, 8)] * 65536 + S[extract(word, 8, 8)] * 256
        + S[extract(word, 0, 8)]
end

-- The words of the round keys, in one list.
local function expanded(key)
    local length, words, constant = #key / 4, {}, 1
    for n = 1, length do
        words[n] = bits.number(key, 4 * n - 3, 4)
    end
    for n = length + 1, 4 * (length + 7) do
        local word = words[n - 1]
        if (n - 1) % length == 0 then
            word = bxor(substituted(lrotate(word, 8)), constant * 16777216)
            constant = double(constant)
        elseif length > 6 and (n - 1) % length == 4 then
            word = substituted(word)
        end
        words[n] = bxor(words[n - length], word)
    end
    return words
end

local function final(w, x, y, z, key)
    local word = S[rshift(w, 24)] * 16777216 + S[extract(x, 16, 8)] * 65536 + S[extract(y, 8, 8)] * 256
    return bxor(word + S[band(z, 255)], key)
end

-- Encrypts four words.
local function encrypt(keys, a, b, c, d)
    a, b, c, d = bxor(a, keys[1]), bxor(b, keys[2]), bxor(c, keys[3]), bxor(d, keys[4])
    local last = #keys - 3
    for n = 5, last - 4, 4 do
        local e = bxor(T0[rshift(a, 24)], T1[extract(b, 16, 8)], T2[extract(c, 8, 8)], T3[band(d, 255)], keys[n])
        local f = bxor(T0[rshift(b, 24)], T1[extract(c, 16, 8)], T2[extract(d, 8, 8)], T3[band(a, 255)], keys[n + 1])
        local g = bxor(T0[rshift(c, 24)], T1[extract(d, 16, 8)], T2[extract(a, 8, 8)], T3[band(b, 255)], keys[n + 2])
        d = bxor(T0[rshift(d, 24)], T1[extract(a, 16, 8)], T2[extract(b, 8, 8)], T3[band(c, 255)], keys[n + 3])
        a, b, c = e, f, g
    end
    return final(a, b, c, d, keys[last]), final(b, c, d, a, keys[last + 1]), final(c, d, a, b, keys[last + 2]),
        final(d, a, b, c, keys[last + 3])
end

-- Returns the products of the hash key with each value of each byte of a block, one list for each word of the product.
local function products(h0, h1, h2, h3)
    local p0, p1, p2, p3 = {}, {}, {}, {}
    for place = 0, 4095, 256 do
        p0[place], p1[place], p2[place], p3[place] = 0, 0, 0, 0
        local bit = 128
        while bit >= 1 do
            local at = place + bit
            p0[at], p1[at], p2[at], p3[at] = h0, h1, h2, h3
            -- The coefficients of GCM are in reverse: multiplication by x shifts to the right.
            local leaving = h3 % 2
            h3 = rshift(h3, 1) + h2 % 2 * 2147483648
            h2 = rshift(h2, 1) + h1 % 2 * 2147483648
            h1 = rshift(h1, 1) + h0 % 2 * 2147483648
            h0 = rshift(h0, 1)
            if leaving == 1 then
                h0 = bxor(h0, 0xe1000000)
            end
            bit = math.floor(bit / 2)
        end
        bit = 2
        while bit <= 128 do
            for n = 1, bit - 1 do
                local at, one, other = place + bit + n, place + bit, place + n
                p0[at], p1[at] = bxor(p0[one], p0[other]), bxor(p1[one], p1[other])
                p2[at], p3[at] = bxor(p2[one], p2[other]), bxor(p3[one], p3[other])
            end
            bit = bit * 2
        end
    end
    return { p0, p1, p2, p3 }
end

-- Multiplies the words of a block by the hash key.
local function multiply(tables, x0, x1, x2, x3)
    local a, b = rshift(x0, 24), extract(x0, 16, 8) + 256
    local c, d = extract(x0, 8, 8) + 512, band(x0, 255) + 768
    local e, f = rshift(x1, 24) + 1024, extract(x1, 16, 8) + 1280
    local g, h = extract(x1, 8, 8) + 1536, band(x1, 255) + 1792
    local i, j = rshift(x2, 24) + 2048, extract(x2, 16, 8) + 2304
    local k, l = extract(x2, 8, 8) + 2560, band(x2, 255) + 2816
    local m, n = rshift(x3, 24) + 3072, extract(x3, 16, 8) + 3328
    local o, p = extract(x3, 8, 8) + 3584, band(x3, 255) + 3840
    local t, u, v, w = tables[1], tables[2], tables[3], tables[4]
    return bxor(bxor(t[a], t[b], t[c], t[d]), bxor(t[e], t[f], t[g], t[h]), bxor(t[i], t[j], t[k], t[l]), bxor(t[m], t[n], t[o], t[p])),
        bxor(bxor(u[a], u[b], u[c], u[d]), bxor(u[e], u[f], u[g], u[h]), bxor(u[i], u[j], u[k], u[l]), bxor(u[m], u[n], u[o], u[p])),
        bxor(bxor(v[a], v[b], v[c], v[d]), bxor(v[e], v[f], v[g], v[h]), bxor(v[i], v[j], v[k], v[l]), bxor(v[m], v[n], v[o], v[p])),
        bxor(bxor(w[a], w[b], w[c], w[d]), bxor(w[e], w[f], w[g], w[h]), bxor(w[i], w[j], w[k], w[l]), bxor(w[m], w[n], w[o], w[p]))
end

-- The words of a block of 16 bytes; bytes behind the end count as 0.
local function block_at(data, at)
    local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = byte(data, at, at + 15)
    if not p then
        return block_at(data:sub(at) .. ("\0"):rep(16), 1)
    end
    return a * 16777216 + b * 65536 + c * 256 + d, e * 16777216 + f * 65536 + g * 256 + h,
        i * 16777216 + j * 65536 + k * 256 + l, m * 16777216 + n * 65536 + o * 256 + p
end

local function bytes_of(a, b, c, d)
    return char(
        rshift(a, 24), extract(a, 16, 8), extract(a, 8, 8), band(a, 255),
        rshift(b, 24), extract(b, 16, 8), extract(b, 8, 8), band(b, 255),
        rshift(c, 24), extract(c, 16, 8), extract(c, 8, 8), band(c, 255),
        rshift(d, 24), extract(d, 16, 8), extract(d, 8, 8), band(d, 255)
    )
end

ciphers.AES_GCM = {}

function ciphers.AES_GCM.new(key)
    local keys = expanded(key)
    local tables = products(encrypt(keys, 0, 0, 0, 0))
    return function(nonce, associated, sealed)
        local length = #sealed - 16
        local n0, n1, n2 = block_at(nonce, 1)
        local text = sealed:sub(1, length)
        local y0, y1, y2, y3 = 0, 0, 0, 0
        for at = 1, #associated, 16 do
            local a0, a1, a2, a3 = block_at(associated, at)
            y0, y1, y2, y3 = multiply(tables, bxor(y0, a0), bxor(y1, a1), bxor(y2, a2), bxor(y3, a3))
        end
        local out = {}
        for n = 1, math.ceil(length / 16) do
            local c0, c1, c2, c3 = block_at(text, 16 * n - 15)
            y0, y1, y2, y3 = multiply(tables, bxor(y0, c0), bxor(y1, c1), bxor(y2, c2), bxor(y3, c3))
            local k0, k1, k2, k3 = encrypt(keys, n0, n1, n2, n + 1)
            out[n] = bytes_of(bxor(c0, k0), bxor(c1, k1), bxor(c2, k2), bxor(c3, k3))
        end
        y0, y1, y2, y3 = multiply(tables, y0, bxor(y1, #associated * 8), y2, bxor(y3, #text * 8))
        local m0, m1, m2, m3 = encrypt(keys, n0, n1, n2, 1)
        if bytes_of(bxor(y0, m0), bxor(y1, m1), bxor(y2, m2), bxor(y3, m3)) ~= sealed:sub(length + 1) then
            return nil
        end
        return concat(out):sub(1, length)
    end
end

local function little(data, at)
    local a, b, c, d = byte(data, at, at + 3)
    return a + b * 256 + c * 65536 + d * 16777216
end

-- The places in the state that each step of two rounds mixes.
local QUARTERS = {
    { 1, 5, 9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 }, { 4, 8, 12, 16 },
    { 1, 6, 11, 16 }, { 2, 7, 12, 13 }, { 3, 8, 9, 14 }, { 4, 5, 10, 15 },
}

-- The 64 bytes of a block of ChaCha20 as bytes in a string.
local function chacha_block(start, counter)
    local v = {}
    for n = 1, 16 do
        v[n] = start[n]
    end
    v[13] = counter
    for _ = 1, 10 do
        for n = 1, 8 do
            local q = QUARTERS[n]
            local ia, ib, ic, id = q[1], q[2], q[3], q[4]
            local a, b, c, d = v[ia], v[ib], v[ic], v[id]
            a = (a + b) % 4294967296
            d = lrotate(bxor(d, a), 16)
            c = (c + d) % 4294967296
            b = lrotate(bxor(b, c), 12)
            a = (a + b) % 4294967296
            d = lrotate(bxor(d, a), 8)
            c = (c + d) % 4294967296
            v[ia], v[ib], v[ic], v[id] = a, lrotate(bxor(b, c), 7), c, d
        end
    end
    local out = {}
    for n = 1, 16 do
        out[n] = bits.word((v[n] + (n == 13 and counter or start[n])) % 4294967296):reverse()
    end
    return concat(out)
end

-- Numbers of Poly1305 in ten parts of 13 bits: their products fit where numbers have 53 bits.
local PARTS, PART = 10, 8192

local function parts_of(data, is_block)
    local out, value, width, at = {}, 0, 0, 1
    for n = 1, PARTS do
        while width < 13 do
            local next_byte = byte(data, at)
            if not next_byte then
                next_byte = is_block and at == #data + 1 and 1 or 0
            end
            value, width, at = value + next_byte * 2 ^ width, width + 8, at + 1
        end
        out[n] = value % PART
        value, width = (value - out[n]) / PART, width - 13
    end
    return out
end

-- Carries what exceeds a part into the next one; what exceeds 130 bits comes back five times.
local function carry(parts)
    for _ = 1, 2 do
        local over = 0
        for n = 1, PARTS do
            local value = parts[n] + over
            parts[n] = value % PART
            over = (value - parts[n]) / PART
        end
        parts[1] = parts[1] + over * 5
    end
end

local function poly1305(key, data)
    local clamped = {}
    for n = 1, 16 do
        local value = byte(key, n)
        if n % 4 == 0 then
            value = band(value, 15)
        elseif n > 1 and n % 4 == 1 then
            value = band(value, 252)
        end
        clamped[n] = char(value)
    end
    local r, sum = parts_of(concat(clamped)), parts_of("")
    for at = 1, #data, 16 do
        local block, product = parts_of(data:sub(at, at + 15), true), {}
        for n = 1, PARTS do
            sum[n], product[n] = sum[n] + block[n], 0
        end
        for i = 1, PARTS do
            for j = 1, PARTS do
                local place, value = i + j - 1, sum[i] * r[j]
                if place > PARTS then
                    place, value = place - PARTS, value * 5
                end
                product[place] = product[place] + value
            end
        end
        carry(product)
        sum = product
    end
    carry(sum)
    -- The rest modulo 2^130 - 5: the sum with 5 exceeds 130 bits if the sum is not smaller than the modulus.
    local reduced = { sum[1] + 5 }
    for n = 1, PARTS do
        local over = math.floor(reduced[n] / PART)
        reduced[n] = reduced[n] % PART
        reduced[n + 1] = (sum[n + 1] or 0) + over
    end
    local chosen = reduced[PARTS + 1] > 0 and reduced or sum
    local out, value, width, part, over = {}, 0, 0, 1, 0
    for n = 1, 16 do
        if width < 8 then
            value, width, part = value + (chosen[part] or 0) * 2 ^ width, width + 13, part + 1
        end
        local total = value % 256 + byte(key, 16 + n) + over
        over = math.floor(total / 256)
        out[n] = char(math.floor(total % 256))
        value, width = math.floor(value / 256), width - 8
    end
    return concat(out)
end

local function to_16(data)
    return data .. ("\0"):rep(-#data % 16)
end

-- A length in eight little-endian bytes.
local function length_of(data)
    return bits.word(#data):reverse() .. ("\0"):rep(4)
end

ciphers.CHACHA20_POLY1305 = {}

function ciphers.CHACHA20_POLY1305.new(key)
    return function(nonce, associated, sealed)
        local length = #sealed - 16
        local start = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }
        for n = 1, 8 do
            start[4 + n] = little(key, 4 * n - 3)
        end
        start[13] = 0
        for n = 1, 3 do
            start[13 + n] = little(nonce, 4 * n - 3)
        end
        local text = sealed:sub(1, length)
        local covered = to_16(associated) .. to_16(text) .. length_of(associated) .. length_of(text)
        if poly1305(chacha_block(start, 0), covered) ~= sealed:sub(length + 1) then
            return nil
        end
        local out = {}
        for at = 1, length, 64 do
            local stream, part = chacha_block(start, (at - 1) / 64 + 1), {}
            for n = 1, math.min(64, length - at + 1) do
                part[n] = char(bxor(byte(text, at + n - 1), byte(stream, n)))
            end
            out[#out + 1] = concat(part)
        end
        return concat(out)
    end
end

return ciphers
