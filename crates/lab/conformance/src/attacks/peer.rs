//! Programs on the kernel's Multipath TCP, with or without TLS 1.3: the other systems, and the stock Linux host.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::attacks::fixture::{Fixture, PORT, START, Side};
use plait_lab::Program;

/// Standard input and output to and from a socket, by one thread that never blocks in one direction. With a certificate or the word
/// `tls`, through OpenSSL. A side is done when it has sent and received as much as it was told to; an end of the stream before that
/// is an error, as it would be for any program that knows what it waits for. Congestion control is as the namespace has it, unless the
/// environment names one in `CONGESTION`.
const PROGRAM: &str = r#"
import os, select, socket, ssl, sys
side, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
up, down = int(sys.argv[4]), int(sys.argv[5])
to_send, to_receive = (up, down) if side == "client" else (down, up)
tls = sys.argv[6] if len(sys.argv) > 6 else None
if side == "server":
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(4)
    print("listening on port", port, file=sys.stderr, flush=True)
    peer, _ = listener.accept()
else:
    peer = socket.create_connection((address, port), timeout=20)
if "CONGESTION" in os.environ:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, os.environ["CONGESTION"].encode())
if tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side == "server" else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if side == "server":
        context.load_cert_chain(tls)
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    peer = context.wrap_socket(peer, server_side=side == "server")
peer.setblocking(False)
waiting = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
sent = received = 0
block, room = b"", 65536
is_open = True
while sent < to_send or received < to_receive:
    progress = False
    if sent < to_send and not block and is_open and select.select([0], [], [], 0)[0]:
        block = os.read(0, room)
        is_open = bool(block)
    if block:
        try:
            count = peer.send(block)
            block, sent, progress = block[count:], sent + count, True
        except waiting:
            pass
    if received < to_receive:
        try:
            data = peer.recv(room)
            if not data:
                sys.exit("the stream has ended early")
            received, progress = received + len(data), True
            while data:
                data = data[os.write(1, data):]
        except waiting:
            pass
    if not progress:
        reading = [peer] + ([0] if sent < to_send and not block and is_open else [])
        select.select(reading, [peer] if block else [], [], 1)
os.close(1)
if tls:
    # What the other side still has to say it says before it ends as well.
    peer.setblocking(True)
    peer.settimeout(20)
    try:
        peer.unwrap()
    except (ssl.SSLError, OSError):
        pass
else:
    peer.shutdown(socket.SHUT_WR)
    peer.setblocking(True)
    peer.settimeout(20)
    peer.recv(1)
"#;

/// The layer of the peers above Multipath TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Nothing,
    Tls,
}

/// Starts the program on one side, for this many bytes each way; waits for a server.
pub(crate) fn start(fixture: &Fixture<'_>, side: Side, layer: Layer, size: u64) -> Result<Program> {
    start_command(fixture, side, layer, command(fixture, side, [size; 2])?)
}

/// The same without a layer, for these numbers of bytes up and down, with CUBIC.
pub(crate) fn start_cubic(fixture: &Fixture<'_>, side: Side, sizes: [u64; 2]) -> Result<Program> {
    let mut command = command(fixture, side, sizes)?;
    command.env("CONGESTION", "cubic");
    start_command(fixture, side, Layer::Nothing, command)
}

fn command(fixture: &Fixture<'_>, side: Side, sizes: [u64; 2]) -> Result<Command> {
    let address = fixture.server_address("a")?.to_string();
    let mut command = Command::new("mptcpize");
    command.args(["run", "python3", "-c", PROGRAM, side.name(), &address, &PORT.to_string()]);
    command.args(sizes.map(|size| size.to_string()));
    Ok(command)
}

fn start_command(fixture: &Fixture<'_>, side: Side, layer: Layer, mut command: Command) -> Result<Program> {
    match (layer, side) {
        (Layer::Nothing, _) => {}
        (Layer::Tls, Side::Client) => {
            command.arg("tls");
        }
        (Layer::Tls, Side::Server) => {
            command.arg(certificate(&fixture.file("tls"))?);
        }
    }
    let mut program = fixture.start(side, command)?;
    if side == Side::Server {
        program.wait_for_line("listening on port", START)?;
    }
    Ok(program)
}

/// Makes a key and its certificate, in one file.
fn certificate(stem: &Path) -> Result<std::path::PathBuf> {
    let (key, shown, both) =
        (stem.with_extension("key"), stem.with_extension("crt"), stem.with_extension("pem"));
    plait_lab::certificate(&key, &shown)?;
    std::fs::write(&both, [std::fs::read(&key)?, std::fs::read(&shown)?].concat())?;
    Ok(both)
}
