//! Traffic of the kernel's own TCP and Multipath TCP through a lab.

#![allow(dead_code)]

pub(crate) mod load;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use plait_lab::{Conditions, Host, Lab, LabConfig, PathClass, PathConfig};
use socket2::{Domain, Protocol, Socket, Type};

/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A transfer in which nothing moves for this long hangs.
const STALLED: Duration = Duration::from_secs(4);

/// Which protocol a transfer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Tcp,
    Mptcp,
}

/// A lab with these paths.
pub(crate) fn lab(conditions: &[Conditions]) -> Lab {
    let classes = [PathClass::Trusted, PathClass::Untrusted];
    let paths = conditions.iter().zip(["a", "b"]).zip(classes);
    let paths = paths.map(|((conditions, name), class)| PathConfig::new(name, class, conditions.clone()));
    lab_of(LabConfig { paths: paths.collect(), ..LabConfig::default() })
}

pub(crate) fn lab_of(config: LabConfig) -> Lab {
    Lab::up(config).expect("root can have a lab")
}

/// Bytes in which every eight differ from every other eight.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length.div_ceil(8) as u64)
        .flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .take(length)
        .collect()
}

/// What the receiver got of a transfer.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    /// How the stream ended for the receiver.
    pub(crate) end: End,
    /// From before the first byte to the end. A busy machine makes it longer, never shorter.
    pub(crate) took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// An orderly end of the stream.
    EndOfFile,
    Error(ErrorKind),
}

/// A listener in a host.
pub(crate) fn listen(host: &Host, address: IpAddr, transport: Transport) -> (TcpListener, SocketAddr) {
    let at = SocketAddr::new(address, 0);
    let listener = inside(host, || {
        let socket = socket(at, transport);
        socket.bind(&at.into())?;
        socket.listen(16)?;
        Ok(TcpListener::from(socket))
    });
    let at = listener.local_addr().expect("it is bound");
    (listener, at)
}

pub(crate) fn connect(host: &Host, to: SocketAddr, transport: Transport) -> std::io::Result<TcpStream> {
    host.namespace()
        .enter(|| {
            let socket = socket(to, transport);
            socket.connect_timeout(&to.into(), TIMEOUT)?;
            Ok(TcpStream::from(socket))
        })
        .expect("the host is there")
}

fn socket(for_address: SocketAddr, transport: Transport) -> Socket {
    let protocol = match transport {
        Transport::Tcp => Protocol::TCP,
        Transport::Mptcp => Protocol::MPTCP,
    };
    Socket::new(Domain::for_address(for_address), Type::STREAM, Some(protocol)).expect("a socket")
}

fn inside<T: Send>(host: &Host, work: impl FnOnce() -> std::io::Result<T> + Send) -> T {
    host.namespace().enter(work).expect("the host is there").expect("the kernel allows it")
}

/// A pair of connected sockets: the client's and the server's.
pub(crate) fn pair(lab: &Lab, address: IpAddr, transport: Transport) -> (TcpStream, TcpStream) {
    let (listener, at) = listen(lab.server(), address, transport);
    let client = connect(lab.client(), at, transport).expect("connected");
    let (server, _) = listener.accept().expect("it has connected");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(STALLED)).expect("a time");
        stream.set_write_timeout(Some(STALLED)).expect("a time");
    }
    (client, server)
}

/// Sends `data` from client to server on path `a`, and returns what arrives.
pub(crate) fn upload(lab: &Lab, transport: Transport, data: &[u8]) -> Received {
    let address = lab.path("a").expect("the first path").server().v4;
    let (client, server) = pair(lab, address, transport);
    transfer(client, server, data)
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends all of `data` and the end of the stream. Errors of the sender are not looked at: what counts is what arrives.
pub(crate) fn transfer(mut sender: TcpStream, mut receiver: TcpStream, data: &[u8]) -> Received {
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if sender.write_all(data).is_ok() {
                let _ = sender.shutdown(Shutdown::Write);
            }
            // The other side closes when it has all, or goes away.
            let _ = sender.read(&mut [0; 16]);
        });
        let (mut bytes, mut room) = (Vec::new(), vec![0; 65_536]);
        let end = loop {
            match receiver.read(&mut room) {
                Ok(0) => break End::EndOfFile,
                Ok(length) => bytes.extend_from_slice(&room[..length]),
                // A process that was stopped goes on: signal(7), sockets with a limit of time.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break End::Error(error.kind()),
            }
        };
        drop(receiver);
        Received { bytes, end, took: began.elapsed() }
    })
}
