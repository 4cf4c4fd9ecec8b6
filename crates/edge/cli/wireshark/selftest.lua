-- The published vectors of the hashes and ciphers. Run by tests, as `lua selftest.lua` or `tshark -X lua_script:selftest.lua`; not installed.

package.path = (arg and arg[0] or debug.getinfo(1, "S").source:sub(2)):gsub("[^/]*$", "") .. "?.lua;" .. package.path

local bits, hash, ciphers = require("plait_bits"), require("plait_hash"), require("plait_ciphers")

local failed, done = 0, 0

local function equal(what, found, known)
    done = done + 1
    if found ~= known then
        failed = failed + 1
        print(("SELFTEST FAILED %s: %s, and %s is published"):format(what, tostring(found), tostring(known)))
    end
end

local function unhex(text)
    return bits.unhex((text:gsub("%s", "")))
end

-- FIPS 180-4, with the examples of NIST.
local ABC = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
local ABCD = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"
equal("SHA-256 of abc", bits.hex(hash.sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
equal("SHA-256 of nothing", bits.hex(hash.sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
equal("SHA-256 of two blocks", bits.hex(hash.sha256(ABC)), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
equal("SHA-384 of abc", bits.hex(hash.sha384("abc")),
    "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7")
equal("SHA-384 of two blocks", bits.hex(hash.sha384(ABCD)),
    "09330c33f71147e83d192fc782cd1b4753111b173b3b05d22fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039")

-- RFC 4231, case 2 and case 6.
equal("HMAC-SHA-256", bits.hex(hash.hmac("Jefe", "what do ya want for nothing?")),
    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
equal("HMAC-SHA-384", bits.hex(hash.hmac(("\170"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First", hash.SHA384)),
    "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952")

-- RFC 5869, case 1.
local PSEUDORANDOM = unhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
equal("HKDF-Expand", bits.hex(hash.expand(PSEUDORANDOM, unhex("f0f1f2f3f4f5f6f7f8f9"), 42)),
    "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")

-- The test vectors of BLAKE3, keyed, of 0, 1 and 65 counting bytes.
local WHATS = "whats the Elvish word for friend"
equal("BLAKE3 of nothing", bits.hex(hash.blake3_keyed(WHATS, "")), "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26")
equal("BLAKE3 of a byte", bits.hex(hash.blake3_keyed(WHATS, "\0")), "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b")
local counting = {}
for n = 0, 64 do
    counting[n + 1] = string.char(n)
end
equal("BLAKE3 of two blocks", bits.hex(hash.blake3_keyed(WHATS, table.concat(counting))),
    "c0a4edefa2d2accb9277c371ac12fcdbb52988a86edc54f0716e1591b4326e72")

-- The specification of GCM: cases 4 and 16.
local PLAIN = unhex([[d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
    1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39]])
local NONCE, ASSOCIATED = unhex("cafebabefacedbaddecaf888"), unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
local GCM = {
    ["AES-128-GCM"] = { "feffe9928665731c6d6a8f9467308308", [[42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
        21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091 5bc94fbc3221a5db94fae95ae7121a47]] },
    ["AES-256-GCM"] = { "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        [[522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
        8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662 76fc6ece0f4e1768cddf8853bb2d551b]] },
}
for name, case in pairs(GCM) do
    local open, sealed = ciphers.AES_GCM.new(unhex(case[1])), unhex(case[2])
    equal(name, open(NONCE, ASSOCIATED, sealed), PLAIN)
    equal(name .. ", a wrong tag", open(NONCE, ASSOCIATED, sealed:sub(1, -2) .. "\0"), nil)
    equal(name .. ", other associated data", open(NONCE, "", sealed), nil)
end

-- RFC 8439, section 2.8.2.
local KEY = unhex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f")
local SEALED = unhex([[d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6
    3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36
    92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
    3ff4def08e4b7a9de576d26586cec64b6116 1ae10b594f09e26a7e902ecbd0600691]])
local SUNSCREEN = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."
local open = ciphers.CHACHA20_POLY1305.new(KEY)
equal("ChaCha20-Poly1305", open(unhex("070000004041424344454647"), unhex("50515253c0c1c2c3c4c5c6c7"), SEALED), SUNSCREEN)
equal("ChaCha20-Poly1305, a wrong tag", open(unhex("070000004041424344454647"), "", SEALED), nil)

print(("SELFTEST %d values checked, %d differ"):format(done, failed))
