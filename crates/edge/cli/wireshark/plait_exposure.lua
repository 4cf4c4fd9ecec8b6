-- What each path has carried of each connection.

local exposure = {}

local LINE = "%-10s %-8s %-46s %-9s %8s %12s %12s %12s"

-- Returns a table as text, a line for each subflow and direction.
function exposure.text(world)
    local lines = { LINE:format("connection", "subflow", "addresses", "direction", "blocks", "bytes", "repeated", "longest run") }
    for _, connection in ipairs(world.connections) do
        for _, subflow in ipairs(connection.subflows) do
            for side = 0, 1 do
                local carried = subflow.carried[side]
                local way = connection:way(subflow, side)
                local addresses = subflow.source .. " > " .. subflow.destination
                lines[#lines + 1] = LINE:format(
                    connection.number, subflow.index, addresses, way == "ab" and "A to B" or "B to A", carried.blocks,
                    ("%.0f"):format(carried.bytes), ("%.0f"):format(carried.repeated), ("%.0f"):format(carried.run)
                )
            end
        end
    end
    lines[#lines + 1] = "bytes: those of complete blocks; repeated: of these, the bytes of blocks that were seen before;"
    lines[#lines + 1] = "longest run: consecutive bytes of the stream that crossed this subflow and no other in between"
    return table.concat(lines, "\n") .. "\n"
end

return exposure
