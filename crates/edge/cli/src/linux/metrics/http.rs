//! One request of HTTP/1.1 for a page, and its answer; then the connection ends. `httparse` reads the request.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head of a request: that of a browser, with room to spare.
const MAX_HEAD: usize = 8 * 1024;
/// Most fields of a head.
const MAX_FIELDS: usize = 64;

/// The values of `Host` that are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hosts {
    /// Loopback addresses and `localhost`. A page in a browser could otherwise read the metrics under a name of its own that leads to
    /// this host (DNS rebinding).
    Loopback,
    /// All: no browser reaches a Unix socket.
    Any,
}

/// The format of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus, for scrapers that do not ask for OpenMetrics.
    Prometheus,
}

/// A request for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) format: Format,
    has_body: bool,
}

/// A request that is not answered by the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Malformed,
    TooLong,
    Method,
    Place,
    Host,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    head: String,
    body: String,
}

/// Reads a request.
///
/// # Errors
/// The connection has ended.
pub(super) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    hosts: Hosts,
) -> io::Result<Result<Request, Refusal>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let room = MAX_HEAD - head.len();
        if room == 0 {
            return Ok(Err(Refusal::TooLong));
        }
        if (&mut *stream).take(room as u64).read_buf(&mut head).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some(judged) = judge(&head, hosts) {
            return Ok(judged);
        }
    }
}

/// Judges the beginning of a request; `None` while its head is incomplete.
fn judge(head: &[u8], hosts: Hosts) -> Option<Result<Request, Refusal>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(Err(Refusal::TooLong)),
        Err(_) => return Some(Err(Refusal::Malformed)),
    }
    let has_body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        Some(_) | None => return Some(Err(Refusal::Method)),
    };
    let field = |name: &str| {
        let found = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.and_then(|field| std::str::from_utf8(field.value).ok())
    };
    if hosts == Hosts::Loopback && !field("host").is_some_and(is_local) {
        return Some(Err(Refusal::Host));
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Some(Err(Refusal::Place));
    }
    let wants_open_metrics =
        field("accept").is_some_and(|kinds| kinds.contains("application/openmetrics-text"));
    let format = if wants_open_metrics { Format::OpenMetrics } else { Format::Prometheus };
    Some(Ok(Request { format, has_body }))
}

/// `localhost` or a loopback address, with a port or without.
fn is_local(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => {
            name
        }
        Some(_) | None => host,
    };
    let name = without_port.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Refusal {
    fn status(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Method => "405 Method Not Allowed",
            Self::Place => "404 Not Found",
            Self::Host => "421 Misdirected Request",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Malformed => "this is no request of HTTP/1.1\n",
            Self::TooLong => "the request is too long\n",
            Self::Method => "only GET and HEAD are answered\n",
            Self::Place => "the metrics are at /metrics\n",
            Self::Host => "the request names another host\n  fix: use 127.0.0.1, [::1] or localhost\n",
        }
    }
}

impl Response {
    pub(super) fn page(request: &Request, page: String) -> Self {
        let head = head("200 OK", request.format.media_type(), page.len());
        Self { head, body: if request.has_body { page } else { String::new() } }
    }

    pub(super) fn refusal(refusal: Refusal) -> Self {
        let body = refusal.words().to_owned();
        Self { head: head(refusal.status(), "text/plain; charset=utf-8", body.len()), body }
    }

    /// # Errors
    /// The connection has ended.
    pub(super) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(self.head.as_bytes()).await?;
        stream.write_all(self.body.as_bytes()).await?;
        stream.shutdown().await
    }
}

fn head(status: &str, media_type: &str, length: usize) -> String {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Option<Result<Request, Refusal>> {
        judge(text.as_bytes(), Hosts::Loopback)
    }

    #[test]
    fn metrics_come_in_the_format_that_is_asked_for() {
        let get = |accept: &str| {
            format!("GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nAccept: {accept}\r\n\r\n")
        };
        let format = |accept: &str| judged(&get(accept)).map(|found| found.map(|request| request.format));
        assert_eq!(format("*/*"), Some(Ok(Format::Prometheus)));
        let of_prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";
        assert_eq!(format(of_prometheus), Some(Ok(Format::OpenMetrics)));
    }

    #[test]
    fn a_request_is_judged_when_its_head_is_complete() {
        let whole = "GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        for len in 0..whole.len() {
            assert_eq!(judged(&whole[..len]), None, "{len}");
        }
        assert!(judged(whole).is_some_and(|judged| judged.is_ok()));
    }

    #[test]
    fn other_requests_are_refused_by_their_fault() {
        let many: String = (0..=MAX_FIELDS).map(|number| format!("X{number}: 1\r\n")).collect();
        for (text, refusal) in [
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", Refusal::Method),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Refusal::Place),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", Refusal::Host),
            ("GET /metrics HTTP/1.1\r\n\r\n", Refusal::Host),
            ("\u{1}\u{2}\r\n\r\n", Refusal::Malformed),
            (&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"), Refusal::TooLong),
        ] {
            assert_eq!(judged(text), Some(Err(refusal)), "{text}");
        }
    }

    #[test]
    fn local_names_are_told_from_others() {
        for local in ["localhost", "LOCALHOST:1", "127.0.0.1:9464", "[::1]:9464", "[::1]", "127.8.8.8"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["", "localhost.example", "192.0.2.1:80", "[2001:db8::1]:80", "127.0.0.1.example", ":80"]
        {
            assert!(!is_local(other), "{other}");
        }
    }

    #[tokio::test]
    async fn an_endless_head_is_read_up_to_its_limit() {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD));
        far.write_all(long.as_bytes()).await.expect("room");
        assert_eq!(read(&mut near, Hosts::Any).await.expect("read"), Err(Refusal::TooLong));
    }
}
