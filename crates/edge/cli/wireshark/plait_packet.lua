-- From the bytes of a frame to a segment, without the fields of other dissectors: the first pass over a capture has no tree.

local bits, tracker = require("plait_bits"), require("plait_tracker")

local packet = {}

local TCP, UDP = 6, 17
-- Where an IP packet begins behind the usual link headers: Ethernet, none, Linux cooked (1 and 2), loopback, one VLAN, two.
local USUAL = { 14, 0, 16, 20, 4, 18, 22 }
-- Behind other headers it is looked for up to here.
local FARTHEST = 160
-- IPv6: hop-by-hop options, routing, destination options.
local EXTENSIONS = { [0] = true, [43] = true, [60] = true }

-- Each returns the protocol, the place of its header (from 1) and of the end of the packet, and the length of an address; nil if there is no whole header.
local function ipv4(raw, at)
    local header, total = raw:byte(at) % 16 * 4, bits.number(raw, at + 2, 2)
    local fragment = bits.number(raw, at + 6, 2) % 16384
    if header < 20 or fragment ~= 0 or at + 19 > #raw then
        return nil
    end
    -- A super-segment may have the length 0.
    return raw:byte(at + 9), at + header, total == 0 and #raw + 1 or at + total, 12, 4
end

local function ipv6(raw, at)
    local following, place = raw:byte(at + 6), at + 40
    local total = bits.number(raw, at + 4, 2)
    while EXTENSIONS[following] and place + 1 <= #raw do
        following, place = raw:byte(place), place + 8 + 8 * raw:byte(place + 1)
    end
    return following, place, total == 0 and #raw + 1 or at + 40 + total, 8, 16
end

-- Returns the IP packet at a place (from 0) if it has these ports: protocol, place of its payload, its end, both addresses.
local function ip_at(raw, place, ports, is_whole)
    local at = place + 1
    local version = bits.rshift(raw:byte(at) or 0, 4)
    local read = version == 4 and ipv4 or version == 6 and ipv6
    if not read then
        return nil
    end
    local protocol, header, finish, addresses, length = read(raw, at)
    if protocol ~= TCP and protocol ~= UDP or raw:sub(header, header + 3) ~= ports or is_whole and finish ~= #raw + 1 then
        return nil
    end
    local from = at + addresses
    return {
        protocol = protocol, at = header, finish = math.min(finish, #raw + 1), source = raw:sub(from, from + length - 1),
        destination = raw:sub(from + length, from + 2 * length - 1),
    }
end

local function find_ip(raw, ports)
    for _, place in ipairs(USUAL) do
        local found = ip_at(raw, place, ports, false)
        if found then
            return found
        end
    end
    for place = 0, math.min(FARTHEST, #raw - 28) do
        local found = ip_at(raw, place, ports, true)
        if found then
            return found
        end
    end
end

-- Returns the header of TCP that a datagram stands for and the place of its options in the datagram (docs/udp.md); nil if it is none.
function packet.unfolded(datagram, ports)
    local offset, flags = datagram:byte(1, 2)
    local size = offset and bits.rshift(offset, 4) * 4 - 8 or 0
    if size < 12 or size > #datagram or bits.band(offset, 14) ~= 0 or bits.band(flags, 32) ~= 0 then
        return nil
    end
    local header = ports .. datagram:sub(5, 12) .. datagram:sub(1, 4) .. "\0\0\0\0" .. datagram:sub(13, size)
    return header, size
end

local function endpoint(address, port)
    local text
    if #address == 4 then
        text = ("%d.%d.%d.%d"):format(address:byte(1, 4))
    else
        text = bits.hex(address):gsub("%x%x%x%x", "%0:"):sub(1, -2)
    end
    return text .. " " .. port
end

-- Returns the segment in a frame whose outer dissectors have found these ports; nil if there is none. Places are from 0.
function packet.segment(raw, source_port, destination_port)
    local ports = bits.short(source_port % 65536) .. bits.short(destination_port % 65536)
    local ip = find_ip(raw, ports)
    if not ip then
        return nil
    end
    local header, size
    local at = ip.at
    if ip.protocol == TCP then
        size = bits.rshift(raw:byte(at + 12) or 0, 4) * 4
        header = raw:sub(at, at + size - 1)
    else
        header, size = packet.unfolded(raw:sub(at + 8, ip.finish - 1), ports)
        size, at = size or 0, at + 8
    end
    if not header or #header < 20 or at + size > ip.finish then
        return nil
    end
    local over = ip.protocol == UDP and " over UDP" or ""
    local beginning = ip.protocol == TCP and 20 or 12
    return {
        source = endpoint(ip.source, source_port) .. over,
        destination = endpoint(ip.destination, destination_port) .. over,
        seq = bits.number(header, 5, 4),
        flags = header:byte(14),
        options = tracker.options(header:sub(21)),
        payload = raw:sub(at + size, ip.finish - 1),
        header_place = at - 1, header_length = size,
        options_place = at - 1 + beginning, options_length = size - beginning,
        payload_place = at - 1 + size, payload_length = ip.finish - at - size,
    }
end

return packet
