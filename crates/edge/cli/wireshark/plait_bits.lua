-- Numbers of 32 bits, and numbers in strings of bytes, for Lua 5.2 to 5.4 (Wireshark 4.0 to 4.6).

local bits = {}

local byte, char = string.byte, string.char

if bit32 then
    for name, operation in pairs(bit32) do
        bits[name] = operation
    end
else
    -- Lua 5.4 has operators in place of the library, and Lua 5.2 cannot parse them.
    local operators = load([[
        local bits = ...
        function bits.band(a, b) return a & b end
        function bits.bor(a, b) return a | b end
        function bits.bnot(a) return ~a & 0xffffffff end
        function bits.bxor(a, b, c, d, e)
            local x = a ~ b
            if c then x = x ~ c end
            if d then x = x ~ d end
            if e then x = x ~ e end
            return x
        end
        function bits.lshift(a, n) return a << n & 0xffffffff end
        function bits.rshift(a, n) return a >> n end
        function bits.extract(a, n, width) return a >> n & (1 << (width or 1)) - 1 end
        function bits.rrotate(a, n) return (a >> n | a << 32 - n) & 0xffffffff end
        function bits.lrotate(a, n) return (a << n | a >> 32 - n) & 0xffffffff end
    ]])
    operators(bits)
end

local extract = bits.extract

-- Returns the big-endian number of `length` bytes (at most 4) at `at`. Bytes that are missing count as 0.
function bits.number(data, at, length)
    local value = 0
    for n = at, at + length - 1 do
        value = value * 256 + (byte(data, n) or 0)
    end
    return value
end

-- Returns the big-endian number of 8 bytes at `at` as its upper and its lower half.
function bits.wide(data, at)
    return bits.number(data, at, 4), bits.number(data, at + 4, 4)
end

-- The same for a `word` of 32 bits, as bytes.
function bits.word(word)
    return char(extract(word, 24, 8), extract(word, 16, 8), extract(word, 8, 8), extract(word, 0, 8))
end

function bits.short(number)
    return char(extract(number, 8, 8), extract(number, 0, 8))
end

-- Returns the sum of 64 bits of a number in two halves and an offset, which may be negative and has less than 2^53.
function bits.add(high, low, offset)
    local sum = low + offset
    local carry = math.floor(sum / 4294967296)
    return math.floor((high + carry) % 4294967296), math.floor(sum % 4294967296)
end

-- Returns the difference of two numbers of 64 bits, each in two halves, as a signed number; exact below 2^53.
function bits.difference(high, low, from_high, from_low)
    local upper = (high - from_high) % 4294967296
    if upper >= 2147483648 then
        upper = upper - 4294967296
    end
    return upper * 4294967296 + (low - from_low)
end

-- Returns the bytes as hexadecimal digits.
function bits.hex(data)
    return (data:gsub(".", function(c)
        return ("%02x"):format(byte(c))
    end))
end

-- Returns the bytes of hexadecimal digits; nil if the text is none.
function bits.unhex(text)
    if #text % 2 == 1 or text:find("[^%x]") then
        return nil
    end
    return (text:gsub("%x%x", function(pair)
        return char(tonumber(pair, 16))
    end))
end

return bits
