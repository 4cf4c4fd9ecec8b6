//! Questions of DNS over one device (RFC 1035).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ::plait_host::OsRandom;
use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use plait_base::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

use super::servers;

/// How often a question is sent to a nameserver, and how long each of them waits for an answer.
const TRIES: usize = 2;
const TRY: Duration = Duration::from_millis(1500);

/// Longest message over UDP without EDNS is 512 bytes; what a larger one means is left to TCP.
const LONGEST: usize = 4096;

/// The port of nameservers.
pub(crate) const DNS_PORT: u16 = 53;

/// The addresses of `host`, as the first nameserver says that answers over `device`, IPv4 first.
///
/// # Errors
/// Why there is none, in words.
pub(super) async fn addresses(host: &str, device: &str, given: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
    let name = Name::vec_from_str(host).map_err(|error| format!("no name: {error}"))?;
    let mut why = "no nameserver can be asked over it".to_owned();
    for server in servers::of(device, given).await {
        let server = SocketAddr::new(server, DNS_PORT);
        match of_server(&name, device, server).await {
            Ok(found) if found.is_empty() => return Err(format!("{server} knows no address")),
            Ok(found) => return Ok(found),
            Err(error) => why = format!("{server}: {error}"),
        }
    }
    Err(why)
}

async fn of_server(name: &Name<Vec<u8>>, device: &str, server: SocketAddr) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for kind in [Rtype::A, Rtype::AAAA] {
        let query = question(name, kind)?;
        let answer = exchange(device, server, &query).await?;
        found.extend(addresses_in(&answer)?);
    }
    Ok(found)
}

fn question(name: &Name<Vec<u8>>, kind: Rtype) -> io::Result<Message<Vec<u8>>> {
    let mut builder = MessageBuilder::new_vec();
    let header = builder.header_mut();
    header.set_id((OsRandom::new()?.next_u32() >> 16) as u16);
    header.set_rd(true);
    let mut builder = builder.question();
    builder.push((name, kind, Class::IN)).map_err(io::Error::other)?;
    Ok(builder.into_message())
}

/// The addresses of the name that was asked for, behind its aliases.
fn addresses_in(answer: &Message<Vec<u8>>) -> io::Result<Vec<IpAddr>> {
    match answer.header().rcode() {
        Rcode::NOERROR | Rcode::NXDOMAIN => {}
        other => return Err(io::Error::other(format!("answered {other}"))),
    }
    let Some(name) = answer.canonical_name() else { return Ok(Vec::new()) };
    let records = answer.answer().map_err(io::Error::other)?;
    let v4 = records.limit_to_in::<A>().filter_map(Result::ok);
    let v4 = v4.filter(|record| *record.owner() == name).map(|record| IpAddr::V4(record.data().addr()));
    let v6 = records.limit_to_in::<Aaaa>().filter_map(Result::ok);
    let v6 = v6.filter(|record| *record.owner() == name).map(|record| IpAddr::V6(record.data().addr()));
    Ok(v4.chain(v6).collect())
}

/// The answer of `server` to `query`, both over `device`: over UDP, and over TCP if it is too long for that.
///
/// # Errors
/// There is no answer, or the server cannot be reached over the device.
pub(crate) async fn exchange(
    device: &str,
    server: SocketAddr,
    query: &Message<Vec<u8>>,
) -> io::Result<Message<Vec<u8>>> {
    let socket = UdpSocket::bind(local(device, server)?).await?;
    #[cfg(target_os = "linux")]
    ::plait_host::put_mark(&socket)?;
    #[cfg(target_os = "linux")]
    socket.bind_device(Some(device.as_bytes()))?;
    // The kernel passes on only what comes from the server.
    socket.connect(server).await?;
    for _ in 0..TRIES {
        socket.send(query.as_slice()).await?;
        match timeout(TRY, receive(&socket, query)).await {
            Ok(answer) => {
                let answer = answer?;
                return if answer.header().tc() { over_tcp(device, server, query).await } else { Ok(answer) };
            }
            Err(_late) => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

/// The next message that answers the query; others are passed over.
async fn receive(socket: &UdpSocket, query: &Message<Vec<u8>>) -> io::Result<Message<Vec<u8>>> {
    let mut buffer = vec![0; LONGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Ok(answer) = Message::from_octets(buffer[..length].to_vec())
            && answer.is_answer(query)
        {
            return Ok(answer);
        }
    }
}

async fn over_tcp(
    device: &str,
    server: SocketAddr,
    query: &Message<Vec<u8>>,
) -> io::Result<Message<Vec<u8>>> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(local(device, server)?)?;
    #[cfg(target_os = "linux")]
    ::plait_host::put_mark(&socket)?;
    #[cfg(target_os = "linux")]
    socket.bind_device(Some(device.as_bytes()))?;
    let asked = async {
        let mut stream = socket.connect(server).await?;
        let length = u16::try_from(query.as_slice().len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], query.as_slice()].concat()).await?;
        let mut answer = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut answer).await?;
        Message::from_octets(answer).map_err(io::Error::other)
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer over TCP");
    let answer = timeout(2 * TRY, asked).await.unwrap_or_else(|_| Err(late()))?;
    if answer.is_answer(query) { Ok(answer) } else { Err(io::Error::other("another question was answered")) }
}

/// Our end: any address where sockets are bound to devices, else that of the path, which is its name there.
fn local(device: &str, server: SocketAddr) -> io::Result<SocketAddr> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let own = if cfg!(target_os = "linux") { any } else { device.parse().map_err(io::Error::other)? };
    Ok(SocketAddr::new(own, 0))
}
