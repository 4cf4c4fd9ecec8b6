-- A dissector of Wireshark and tshark (4.0 to 4.6) for plait: sealed, scrambled and regular connections of Multipath TCP, as docs/protocol.md and
-- docs/udp.md describe them. `plait wireshark --install` installs it; docs/wireshark.md describes its use.
--
-- It runs behind TCP's dissector, on the segments whose SYN had an option of Multipath TCP, and on UDP datagrams that carry such segments.

local bits, fields, keys = require("plait_bits"), require("plait_fields"), require("plait_keys")
local datagram, exposure, packet, show, tracker =
    require("plait_datagram"), require("plait_exposure"), require("plait_packet"), require("plait_show"), require("plait_tracker")

-- The types of ports of a packet, which Wireshark has no names for in Lua.
local PORT_TCP, PORT_UDP = 2, 3

local plait = Proto("plait", "plait, Multipath TCP")
plait.fields, plait.experts = fields.list()
plait.prefs.keylog = Pref.string("Key log", "", "The file that SSLKEYLOGFILE of plait names: its secrets decrypt sealed connections")
plait.prefs.plain = Pref.bool("Regular Multipath TCP", true, "Analyse connections of Multipath TCP that are not sealed, too")
plait.prefs.info = Pref.bool("Column of information", true, "Add blocks and records to the column of information")

plait.prefs.exposure = Pref.bool("Exposure per path", false, "tshark prints at the end what each path has carried")

local world = tracker.new(keys.key_log(""))

-- Prints at the end, if it is asked for.
local listener

function plait.init()
    local log = keys.key_log(plait.prefs.keylog)
    log:read()
    world = tracker.new(log)
    if plait.prefs.exposure and not gui_enabled() and not listener then
        listener = Listener.new("frame")
        function listener.draw()
            print(exposure.text(world))
        end
    end
end

-- Returns the segment of a frame, with ranges of its parts; nil if there is none.
local function segment_of(tvb, pinfo)
    if pinfo.port_type ~= PORT_TCP and pinfo.port_type ~= PORT_UDP then
        return nil
    end
    local segment = packet.segment(tvb:raw(), pinfo.src_port, pinfo.dst_port)
    if segment then
        segment.frame = pinfo.number
        segment.header = tvb:range(segment.header_place, segment.header_length)
        if segment.options_length > 0 then
            segment.option_range = tvb:range(segment.options_place, segment.options_length)
        end
        if segment.payload_length > 0 then
            segment.payload_range = tvb:range(segment.payload_place, segment.payload_length)
        end
    end
    return segment
end

-- The payload of sealed connections: other dissectors would take it for their own by port or by guess.
local payload = Proto("plait_payload", "plait payload")

function payload.dissector(tvb, _, root)
    root:add(payload, tvb:range())
    return tvb:len()
end

function plait.dissector(tvb, pinfo, root)
    local segment = segment_of(tvb, pinfo)
    if not segment then
        return
    end
    if segment.flags == 0 and segment.payload_range and datagram.is_one(segment.payload) then
        -- A capture of plait shows a datagram so.
        if world:knows(segment) then
            local words = datagram.draw(plait, fields.all, root, segment.payload_range)
            pinfo.cols.protocol = "plait"
            pinfo.cols.info:append(" [" .. words .. "]")
        end
        return
    end
    local view = world.frames[segment.frame]
    if not view then
        view = world:take(segment)
    end
    local its = view and view.subflow.connection
    if not view or its and (its.kind == "none" or its.kind == "plain" and not plait.prefs.plain) then
        return
    end
    if its and its.kind == "sealed" and bits.band(segment.flags, 18) == 18 then
        pinfo.conversation = payload
    end
    local words = show.draw(plait, root, segment, view)
    if its and its.kind == "sealed" then
        pinfo.cols.protocol = "plait"
    end
    if plait.prefs.info and #words > 0 then
        pinfo.cols.info:append(" [" .. table.concat(words, ", ") .. "]")
    end
end

register_postdissector(plait)

-- Segments in UDP: the header of UDP has the ports, and the rest of TCP's header follows in another order (docs/udp.md).
local udp = Proto("plait_udp", "TCP in UDP")
udp.prefs.ports = Pref.range("UDP ports", "", "Ports of datagrams that carry segments, where a capture lacks their SYN", 65535)

function udp.dissector(tvb, pinfo, root)
    local raw = tvb:raw()
    if datagram.is_one(raw) then
        pinfo.cols.protocol = "plait"
        pinfo.cols.info = datagram.draw(plait, fields.all, root, tvb:range())
        return tvb:len()
    end
    local header, size = packet.unfolded(raw, bits.short(pinfo.src_port) .. bits.short(pinfo.dst_port))
    if not header then
        return 0
    end
    root:add(udp, tvb:range())
    local whole = ByteArray.new(header .. raw:sub(size + 1), true)
    Dissector.get("tcp"):call(whole:tvb("TCP segment"), pinfo, root)
    return tvb:len()
end

udp:register_heuristic("udp", function(tvb, pinfo, root)
    local header = packet.unfolded(tvb:raw(), bits.short(pinfo.src_port) .. bits.short(pinfo.dst_port))
    if not header or bits.band(header:byte(14), 2) == 0 then
        return false
    end
    for _, option in ipairs(tracker.options(header:sub(21))) do
        local subtype = tracker.subtype(option)
        if subtype == 0 or subtype == 1 then
            pinfo.conversation = udp
            return udp.dissector(tvb, pinfo, root) > 0
        end
    end
    return false
end)

local ports = ""

function udp.prefs_changed()
    local table_of_ports = DissectorTable.get("udp.port")
    if ports ~= "" then
        table_of_ports:remove(ports, udp)
    end
    ports = tostring(udp.prefs.ports)
    if ports ~= "" then
        table_of_ports:add(ports, udp)
    end
end

if gui_enabled() then
    register_menu("plait/Exposure per path", function()
        local window = TextWindow.new("plait: exposure per path")
        window:set(exposure.text(world))
    end, MENU_TOOLS_UNSORTED)
end
