//! A request for a destination and its answer, on any pair of streams.
//!
//! The client writes its request and then the program's bytes at once; the server's answer precedes the
//! returned bytes. So only a caller that needs the answer waits for a round trip.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::convert::{Destination, ErrorCode, Instance, MAX_MESSAGE, Message, Parsed};

/// The reason that a destination was not reached.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server says no.
    #[error("{0}")]
    Refused(ErrorCode),
    /// The server answers with something that is no answer.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(ErrorCode),
    /// The connection to the server failed before it answered.
    #[error("the connection to the server failed: {0}")]
    Lost(#[from] io::Error),
}

/// The server has done what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The instance that answered, if the server sent it.
    pub instance: Option<Instance>,
    /// The first bytes behind the answer.
    pub first: Vec<u8>,
}

/// A message, and the bytes of the stream that were read with it.
type WithRest = (Message, Vec<u8>);

/// Client: asks to be connected. The answer comes later, by [`answer`].
///
/// # Errors
/// The stream failed.
pub async fn ask(stream: &mut (impl AsyncWrite + Unpin), to: Destination) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(64);
    Message::Connect(to).emit(&mut bytes);
    stream.write_all(&bytes).await
}

/// Client: waits for the server's answer.
///
/// # Errors
/// The server refused, or the stream failed.
pub async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<Answer, RequestError> {
    match read_message(stream, Vec::new()).await? {
        Ok((Message::Connected(instance), first)) => Ok(Answer { instance, first }),
        Ok((Message::Failed(code), _)) => Err(RequestError::Refused(code)),
        Ok((Message::Connect(_), _)) => Err(RequestError::Nonsense(ErrorCode::UnsupportedMessage)),
        Err(code) => Err(RequestError::Nonsense(code)),
    }
}

/// Server: waits for the request; the first bytes behind it are returned. A request that makes no sense is
/// answered, and is `Ok(None)`.
///
/// # Errors
/// The stream failed.
pub async fn request<S>(stream: &mut S) -> io::Result<Option<(Destination, Vec<u8>)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    request_after(stream, Vec::new()).await
}

/// Server: the same, of which `bytes` were read already.
///
/// # Errors
/// The stream failed.
pub(crate) async fn request_after<S>(
    stream: &mut S,
    bytes: Vec<u8>,
) -> io::Result<Option<(Destination, Vec<u8>)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let code = match read_message(stream, bytes).await? {
        Ok((Message::Connect(to), rest)) => return Ok(Some((to, rest))),
        Ok((Message::Connected(_) | Message::Failed(_), _)) => ErrorCode::UnsupportedMessage,
        Err(code) => code,
    };
    reply(stream, Err(code)).await?;
    Ok(None)
}

/// Server: answers a request.
///
/// # Errors
/// The stream failed.
pub async fn reply(
    stream: &mut (impl AsyncWrite + Unpin),
    outcome: Result<Option<Instance>, ErrorCode>,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(32);
    match outcome {
        Ok(instance) => Message::Connected(instance).emit(&mut bytes),
        Err(code) => Message::Failed(code).emit(&mut bytes),
    }
    stream.write_all(&bytes).await
}

/// The next message; `bytes` of it were read before.
async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    mut bytes: Vec<u8>,
) -> io::Result<Result<WithRest, ErrorCode>> {
    bytes.reserve(MAX_MESSAGE);
    loop {
        match Message::parse(&bytes) {
            Parsed::Message(message, len) => return Ok(Ok((message, bytes.split_off(len)))),
            Parsed::Invalid(code) => return Ok(Err(code)),
            Parsed::Incomplete => {}
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Destination {
        Destination::Name("example.org".into(), 80)
    }

    #[tokio::test]
    async fn the_first_bytes_of_the_program_travel_with_the_request() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        ask(&mut client, web()).await.expect("room");
        client.write_all(b"GET /").await.expect("room");
        let (to, rest) = request(&mut server).await.expect("a stream").expect("a request");
        assert_eq!((to, &rest[..]), (web(), &b"GET /"[..]));
        let instance = Some(Instance([9; 16]));
        reply(&mut server, Ok(instance)).await.expect("room");
        server.write_all(b"HTTP").await.expect("room");
        let answered = answer(&mut client).await.expect("connected");
        assert_eq!(answered, Answer { instance, first: b"HTTP".to_vec() });
    }

    #[tokio::test]
    async fn a_refusal_names_its_reason() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        ask(&mut client, web()).await.expect("room");
        request(&mut server).await.expect("a stream").expect("a request");
        reply(&mut server, Err(ErrorCode::NotAuthorized)).await.expect("room");
        let refused = answer(&mut client).await.expect_err("refused");
        assert!(matches!(refused, RequestError::Refused(ErrorCode::NotAuthorized)), "{refused}");
    }

    #[tokio::test]
    async fn a_server_that_vanishes_is_no_refusal() {
        let (mut client, server) = tokio::io::duplex(4096);
        drop(server);
        assert!(matches!(answer(&mut client).await, Err(RequestError::Lost(_))));
    }

    #[tokio::test]
    async fn a_browser_that_speaks_http_to_the_server_is_told() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("room");
        assert!(request(&mut server).await.expect("a stream").is_none());
        assert!(matches!(answer(&mut client).await, Err(RequestError::Refused(ErrorCode::MalformedMessage))));
    }
}
