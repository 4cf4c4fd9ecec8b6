//! Names that the server looks up at its own nameservers, to judge what a client says about an address.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::dns::{addresses_in, is_host};
use crate::nameservers::Nameservers;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Most nameservers that are asked for a name.
const ATTEMPTS: usize = 2;
/// Length of the header of a message.
const HEADER: usize = 12;

/// The family of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The type of its records: A or AAAA.
    fn record(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 28,
        }
    }
}

/// The addresses of a name, as a nameserver of this host says now; none if it has none, or no nameserver answers.
pub(crate) async fn look_up(nameservers: &Nameservers, name: &str, family: Family) -> Vec<IpAddr> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if !is_host(&name) {
        return Vec::new();
    }
    // One that was silent is the last in the order afterwards.
    for _ in 0..ATTEMPTS {
        let Some(stream) = nameservers.connect().await else { break };
        match timeout(PATIENCE, ask(stream, &name, family)).await {
            Ok(Ok(found)) => return found,
            Ok(Err(error)) => tracing::debug!(%error, "a nameserver has not answered"),
            Err(_) => tracing::debug!("a nameserver has not answered in time"),
        }
    }
    Vec::new()
}

/// Asks over a stream (RFC 7766).
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    name: &str,
    family: Family,
) -> io::Result<Vec<IpAddr>> {
    let query = query(name, family);
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat()).await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; len.into()];
    stream.read_exact(&mut answer).await?;
    // The stream has one query, so its identifier does not distinguish anything.
    match addresses_in(&answer) {
        Some((answered, found)) if answered == name => Ok(found),
        Some(_) | None => Ok(Vec::new()),
    }
}

/// A query for the addresses of a host.
fn query(name: &str, family: Family) -> Vec<u8> {
    let mut query = vec![0; HEADER];
    // Recursion desired, one question.
    (query[2], query[5]) = (1, 1);
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, family.record(), 0, 1]);
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_asked_for_and_only_an_answer_to_it_counts() {
        for (asked, answered, found) in [
            ("files.example", "files.example", 1),
            ("Files.Example.", "files.example", 1),
            ("a.example", "b.example", 0),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let nameservers = Nameservers::given([listener.local_addr().expect("bound")]);
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let len = stream.read_u16().await.expect("a length");
                let mut got = vec![0; len.into()];
                stream.read_exact(&mut got).await.expect("a query");
                let mut answer = query(answered, Family::V4);
                assert_eq!(got.len(), query(asked.trim_end_matches('.'), Family::V4).len());
                (answer[2], answer[3], answer[7]) = (0x81, 0x80, 1);
                answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
                let len = u16::try_from(answer.len()).expect("short").to_be_bytes();
                stream.write_all(&[&len[..], &answer].concat()).await.expect("room");
            });
            assert_eq!(look_up(&nameservers, asked, Family::V4).await.len(), found, "{asked}");
        }
        assert!(look_up(&Nameservers::given([]), "files.example", Family::V4).await.is_empty());
    }
}
