//! SOCKS5 clients (browsers, mostly), each connection a protected stream of its own.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::client::{Dialer, Early, ForwardError};
use crate::convert::Destination;
use crate::direct::{Direct, join, open};
use crate::flows::local::FlowDialer;
use crate::flows::socks::associate;
use crate::request::RequestError;
use crate::socks::{Conversation, Credentials, Reply, Step, reply};

/// Time limit for the client's request.
const TALK_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest exchange before the data: greeting, password and request at their longest.
const MAX_TALK: usize = 257 + 513 + 262;

/// What a client asks for.
enum Wanted {
    /// A connection; with the bytes behind the request.
    Connection(Destination, Vec<u8>),
    /// An association, for datagrams from this port.
    Association(u16),
}

/// Serves one SOCKS5 client to its end and returns the bytes from and to it. `heard` is called with its destination. Connections are opened
/// by `dialer`, and flows of datagrams by `flows`.
///
/// # Errors
/// The client broke off, the server refused (the client was told so), or a stream broke (the client's
/// connection was reset).
pub async fn serve_client<D: Dialer, F: FlowDialer>(
    mut client: TcpStream,
    (dialer, direct, flows): (&D, &Direct, &Arc<F>),
    required: Option<Credentials>,
    heard: impl FnOnce(&Destination),
) -> Result<(u64, u64), ForwardError> {
    let talked = timeout(TALK_TIMEOUT, talk(&mut client, required)).await;
    let (to, first) = match talked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        None => return Ok((0, 0)),
        Some(Wanted::Connection(to, first)) => (to, first),
        Some(Wanted::Association(port)) => {
            heard(&Destination::Datagrams);
            return match flows.is_ready().await {
                Ok(()) => associate(&mut client, port, flows).await.map_err(ForwardError::Program),
                Err(error) => turn_down(client, error).await,
            };
        }
    };
    heard(&to);
    // A client waits for the reply before it sends, so the server's answer is waited for as well.
    match open((dialer, direct), to, Early::Once(&first)).await {
        Ok(opened) => {
            client.write_all(&reply(Reply::Succeeded)).await.map_err(ForwardError::Program)?;
            let (sent, received) = join(dialer, &mut client, opened).await?;
            Ok((sent + first.len() as u64, received))
        }
        Err(error) => turn_down(client, error).await,
    }
}

/// Tells a client that it is refused.
async fn turn_down(mut client: TcpStream, error: RequestError) -> Result<(u64, u64), ForwardError> {
    let code = match &error {
        RequestError::Refused(code) => Reply::from(*code),
        RequestError::Nonsense(_) => Reply::GeneralFailure,
        RequestError::Lost(_) => Reply::NetworkUnreachable,
    };
    client.write_all(&reply(code)).await?;
    client.shutdown().await?;
    Err(error.into())
}

/// `None`: the client was refused and told.
async fn talk(client: &mut TcpStream, required: Option<Credentials>) -> io::Result<Option<Wanted>> {
    let mut conversation = Conversation::new(required);
    let mut bytes = Vec::with_capacity(MAX_TALK);
    loop {
        let (step, used) = conversation.advance(&bytes);
        bytes.drain(..used);
        match step {
            Step::NeedMore if bytes.len() >= MAX_TALK => return Err(io::ErrorKind::InvalidData.into()),
            Step::NeedMore => {
                if client.read_buf(&mut bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Step::Answer(answer) => client.write_all(&answer).await?,
            Step::Connect(to) => return Ok(Some(Wanted::Connection(to, bytes))),
            Step::Associate(port) => return Ok(Some(Wanted::Association(port))),
            Step::Refuse(answer) => {
                client.write_all(&answer).await?;
                client.shutdown().await?;
                return Ok(None);
            }
        }
    }
}
