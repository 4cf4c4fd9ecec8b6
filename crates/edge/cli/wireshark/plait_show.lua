-- The protocol tree of a segment.

local bits, fields, keys = require("plait_bits"), require("plait_fields"), require("plait_keys")
local connection, handshake, records, tracker =
    require("plait_connection"), require("plait_handshake"), require("plait_records"), require("plait_tracker")

local show = {}

local F, E, OF_TAG = fields.all, fields.experts, fields.OF_TAG
local NAMES = { sealed = "sealed", scrambled = "scrambled", plain = "plain", opening = "not answered yet", none = "TCP" }

-- Returns a number as the kind of 64 bits that fields take; one below 0 is what is left of 64 bits.
local function wide(number)
    local high, low = bits.add(0, 0, number)
    return UInt64.new(low, high)
end

local function wide_of(data)
    local high, low = bits.wide(data, 1)
    return UInt64.new(low, high)
end

-- Adds a value that the dissector has computed.
local function derived(tree, field, value)
    local item = tree:add(field, value)
    item:set_generated(true)
    return item
end

local function remark(item, which, text)
    item:add_proto_expert_info(E[which], text)
end

-- Adds the result of a verification.
local function tag(tree, field, item, what)
    if not item.tag then
        return
    end
    local line = derived(tree, field, OF_TAG[item.tag])
    if item.tag == "failed" then
        remark(line, "failed", what .. " does not verify")
    end
end

local function record_value(tree, range, field)
    local name, number = field.name, #field.value <= 4 and bits.number(field.value, 1, #field.value)
    if name == "destination" then
        tree:add(F["record.destination"], range, records.shown(field))
    elseif name == "address" or name == "opening" or name == "ticket" or name == "datagram" then
        if name == "address" then
            tree:add(F["record.address"], range, records.shown(field))
        else
            tree:add(F["record." .. name], range)
        end
    elseif #field.value == 8 then
        tree:add(F["record." .. name], range, wide_of(field.value))
    elseif name == "backup" then
        tree:add(F["record.backup"], range, number ~= 0)
    else
        tree:add(F["record." .. name], range, number)
    end
end

local function control_records(tree, source, body, words)
    for _, record in ipairs(body.records) do
        local range = source:range(record.at, record.length)
        local line = tree:add(F["record.kind"], range, record.kind)
        local shown = {}
        for _, field in ipairs(record.fields) do
            record_value(line, source:range(field.at, field.length), field)
            shown[#shown + 1] = records.shown(field)
        end
        if record.kind ~= records.PADDING then
            local text = table.concat(shown, " ")
            line:set_text("Control record: " .. record.name .. (text ~= "" and " " .. text or ""))
            -- For columns and filters: the line shows both.
            line:add(F["record.name"], range, record.name):set_hidden(true)
            line:add(F["record.value"], range, text):set_hidden(true)
            words[#words + 1] = record.name
        end
    end
    if body.wrong then
        remark(tree, "malformed", body.wrong)
    end
end

-- What an AEAD has opened, as a source of its own.
local function plain_text(tree, block, words)
    local body = block.body
    if #body.text == 0 then
        return
    end
    local source = ByteArray.new(body.text, true):tvb(("Decrypted plait (block %.0f)"):format(block.number))
    if body.records then
        control_records(tree, source, body, words)
    else
        derived(tree, F["data.length"], #body.text)
        tree:add(F.data, source:range())
    end
end

local function sealed_block(line, block, words)
    local body, letter = block.body, { ok = "ok", failed = "FAILED", unchecked = "not checked" }
    line:add(F["block.type"], bits.rshift(body.header, 6)):set_generated(true)
    derived(line, F["block.generation"], body.header % 64)
    tag(line, F["block.tag"], body, ("block %.0f"):format(block.number))
    tag(line, F["block.option_tag"], block.option_tag, ("the option tag of block %.0f"):format(block.number))
    words[#words + 1] = ("tag %s"):format(letter[body.tag])
    line:append_text((", tag %s, option tag %s"):format(letter[body.tag], letter[block.option_tag.tag]))
end

local function block_lines(tree, range, block, words)
    local line = tree:add(F["block.number"], range, wide(block.number))
    words[#words + 1] = ("block %.0f+%d"):format(block.number, block.length)
    derived(line, F["block.length"], block.length)
    if block.fin then
        derived(line, F["block.fin"], true)
    end
    if block.in_syn then
        derived(line, F["block.in_syn"], true)
    end
    if block.wrong then
        remark(line, "malformed", "a mapping of " .. block.length .. " bytes is " .. block.wrong)
    end
    if block.body then
        sealed_block(line, block, words)
    end
    if block.first_frame then
        derived(line, F["block.first"], block.first_frame)
        derived(line, block.is_reinjected and F["block.reinjected"] or F["block.retransmitted"], true)
        if block.is_reinjected then
            remark(line, "reinjected", ("this block was in frame %d on another subflow"):format(block.first_frame))
            words[#words + 1] = "reinjected"
        end
    end
    if block.gap then
        local filled = block.gap.filled and ("; frame %d closes it"):format(block.gap.filled) or ""
        remark(line, "gap", ("blocks from %.0f to %.0f were not seen before%s"):format(block.gap.from, block.gap.till - 1, filled))
    end
    if block.path_bytes then
        derived(line, F["path.bytes"], wide(block.path_bytes))
        derived(line, F["path.run"], wide(block.path_run))
    end
    if block.body and block.body.text then
        plain_text(line, block, words)
    end
end

local function acknowledgment(tree, view, words)
    local ack = view.ack
    if ack.number then
        derived(tree, F["ack.number"], wide(ack.number))
        words[#words + 1] = ("Data-ACK %.0f"):format(ack.number)
    end
    if ack.fin then
        derived(tree, F["ack.fin"], wide(ack.fin))
        words[#words + 1] = "DATA_FIN"
    end
    tag(tree, F["ack.tag"], ack, "the tag of this Data-ACK")
end

local function handshake_lines(tree, payload, view, words)
    local its = view.subflow.connection
    for _, message in ipairs(view.messages) do
        local from = math.max(message.at + 1 - view.offset, 0)
        local till = message.at + message.length + 1 - view.offset
        local range = payload:range(from, math.max(math.min(till, payload:len()) - from, 0))
        local line = tree:add(F["handshake.message"], range, message.name)
        words[#words + 1] = message.name
        if message.prologue then
            line:add(F["handshake.capabilities"], range, connection.capabilities(message.prologue.capabilities))
            if message.prologue.instance and from == 0 and #message.prologue.raw <= payload:len() then
                line:add(F["handshake.instance"], payload:range(5, 16))
            end
        end
    end
    if view.handshake_till and #view.messages == 0 then
        local text = ("from %.0f to %.0f"):format(view.offset, view.handshake_till - 1)
        tree:add(F["handshake.bytes"], payload, text)
    end
    if view.confirmation then
        local line = derived(tree, F["handshake.confirmation.tag"], OF_TAG[view.confirmation.tag])
        words[#words + 1] = "confirmation " .. view.confirmation.tag
        if view.confirmation.tag == "failed" then
            remark(line, "failed", "the confirmation of B does not fit the handshake and the key log")
        end
    end
    if its.why_not and view.handshake_till and not its.agreed then
        remark(tree, "no_keys", its.why_not)
    end
end

local function path_key_lines(tree, view, words)
    for _, item in ipairs(view.path_keys) do
        local line = derived(tree, F["pathkey.kind"], item.kind)
        derived(line, F["pathkey.exchange"], bits.number(item.exchange, 1, 4))
        derived(line, F["pathkey.generation"], item.generation)
        derived(line, F["pathkey.length"], item.length)
        if item.path then
            derived(line, F["pathkey.path"], item.path)
        end
        tag(line, F["pathkey.tag"], item, "this PATHKEY")
        if item.wrong then
            remark(line, "no_keys", item.wrong)
        end
        words[#words + 1] = "PATHKEY " .. (item.kind == 1 and "offer" or "answer")
    end
    if view.path_key and #view.path_keys == 0 then
        derived(tree, F["pathkey.offset"], wide(view.path_key.offset))
    end
end

-- The options of SYNs, and the tags of options.
local function option_lines(tree, header, options, view, words)
    for _, option in ipairs(options) do
        local range = header:range(option.at, #option.data)
        if option.kind == 69 then
            for _, spec in ipairs(handshake.specs(option.data)) do
                tree:add(F["eno.spec"], range, spec):append_text(" (" .. (handshake.SPECS[spec] or "unknown") .. ")")
            end
        elseif tracker.subtype(option) == 1 and #option.data == 12 then
            tree:add(F["join.token"], range, bits.number(option.data, 5, 4))
        end
    end
    if view.join then
        tag(tree, F["join.tag"], view.join, "an HMAC of this join")
        words[#words + 1] = "join " .. (view.join.tag or "")
    end
    for _, check in ipairs(view.checks) do
        local line = derived(tree, F["check.kind"], check.kind)
        derived(line, F["check.value"], wide_of(check.value))
        tag(line, F["check.tag"], check, "the tag of CHECK")
        words[#words + 1] = check.kind == 2 and "CHECK question" or "CHECK answer"
    end
    if view.report then
        for _, name in ipairs({ "next", "count", "delay" }) do
            derived(tree, F["report." .. name], view.report[name])
        end
        words[#words + 1] = "REPORT"
    end
    if view.fast_close then
        tag(tree, F["fastclose.tag"], view.fast_close, "the key of MP_FASTCLOSE")
    end
end

local function mapping_lines(tree, view)
    local mapping = view.mapping
    local _, direction = view.subflow.connection:way(view.subflow, view.side)
    local number = mapping.number or direction:relative(mapping.dsn)
    mapping.number = number
    local line = derived(tree, F["mapping.number"], wide(number))
    derived(line, F["mapping.offset"], wide(mapping.offset))
    derived(line, F["mapping.length"], mapping.length)
    if mapping.whole and mapping.whole ~= view.frame then
        derived(line, F["mapping.frame"], mapping.whole)
    end
end

-- Lines about the connection and the subflow.
local function heading(tree, view)
    local subflow, its = view.subflow, view.subflow.connection
    derived(tree, F.connection, its.number)
    if its.version then
        derived(tree, F.version, its.version)
    end
    derived(tree, F.protection, NAMES[its.kind])
    local way = its:way(subflow, view.side)
    derived(tree, F.direction, way == "ab" and "A>B" or "B>A")
    derived(tree, F.subflow, subflow.index)
    if its.kind == "sealed" then
        if subflow.name then
            derived(tree, F["subflow.name"], wide_of(subflow.name))
        end
        derived(tree, F["handshake.kind"], handshake.SPECS[its.spec] or "unknown")
        if its.agreed then
            derived(tree, F["handshake.suite"], keys.SUITES[its.agreed.suite].name)
        end
    end
    if view.offset then
        derived(tree, F.offset, wide(view.offset))
    end
end

-- Draws what a segment means. `segment` has ranges of the frame: `header`, its options `option_range`, and `payload_range`; nil where they are empty.
-- Returns the words for the column of information.
function show.draw(proto, root, segment, view)
    local subflow, words = view.subflow, {}
    local tree = root:add(proto, segment.header)
    local its = subflow.connection
    if not its then
        tree:append_text(", a join of an unknown connection")
        if segment.option_range then
            option_lines(tree, segment.option_range, segment.options, view, words)
        end
        return words
    end
    heading(tree, view)
    if segment.option_range then
        option_lines(tree, segment.option_range, segment.options, view, words)
    end
    if view.wrong then
        if view.wrong == "changed" then
            remark(tree, "changed", "these bytes differ from those that were sent there before")
        else
            remark(tree, "malformed", "bytes far beyond the window")
        end
    end
    if segment.payload_range then
        handshake_lines(tree, segment.payload_range, view, words)
    end
    if view.ack then
        acknowledgment(tree, view, words)
    end
    if view.mapping then
        mapping_lines(tree, view)
    end
    path_key_lines(tree, view, words)
    for _, block in ipairs(view.blocks) do
        block_lines(tree, segment.payload_range or segment.header, block, words)
    end
    local way = its:way(subflow, view.side)
    tree:append_text((", %s, %s, subflow %d"):format(NAMES[its.kind], way == "ab" and "A to B" or "B to A", subflow.index))
    return words
end

return show
