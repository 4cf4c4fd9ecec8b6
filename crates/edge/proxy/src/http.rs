//! A proxy for HTTP, server side (RFC 9110, RFC 9112): CONNECT, requests for pages of http:// addresses, and a PAC file.
//!
//! A sans-I/O reader of a client's request. A connection carries one request: what a client sends behind its end would go to the wrong
//! destination.

use std::net::{IpAddr, SocketAddr};

use base64ct::{Base64, Encoding};
use subtle::ConstantTimeEq;

use crate::convert::{Destination, ErrorCode};
use crate::socks::Credentials;

/// Longest request line with its fields, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;
const MAX_FIELDS: usize = 128;
/// The path of the PAC file.
pub const PAC: &str = "/proxy.pac";
/// Fields that mean the connection to this proxy (RFC 9110, section 7.6.1), and those of the proxy itself.
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// The request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A connection to this destination.
    Tunnel(Destination),
    /// A page.
    Page {
        /// The host that has it.
        to: Destination,
        /// The request as that host gets it, without a body.
        head: Vec<u8>,
        /// Length of the body that follows, in bytes.
        body: u64,
        /// Whether the host may get it twice (RFC 9110, section 9.2.2).
        is_idempotent: bool,
    },
    /// The PAC file, from the proxy at this address as the client names it.
    Pac(Option<Destination>),
}

/// What a client's bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// Not all of a request yet.
    More,
    /// A request, and its length in bytes without a body.
    Request(Request, usize),
    /// Send this and close.
    Refuse(Vec<u8>),
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Nonsense,
    NoProxyRequest,
    OtherScheme,
    LengthRequired,
    TooLong,
    Password,
}

/// Reads a request from the first bytes of a client, which must show `required` if that is given.
pub fn read(bytes: &[u8], required: Option<&Credentials>) -> Read {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Read::More,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Read::Refuse(refusal(Refusal::TooLong));
        }
        Err(_) => return Read::Refuse(refusal(Refusal::Nonsense)),
    };
    match meaning(&request, required) {
        Ok(request) => Read::Request(request, len),
        Err(why) => Read::Refuse(refusal(why)),
    }
}

fn meaning(request: &httparse::Request<'_, '_>, required: Option<&Credentials>) -> Result<Request, Refusal> {
    let (Some(method), Some(target)) = (request.method, request.path) else { return Err(Refusal::Nonsense) };
    if target.starts_with('/') {
        // Not meant for a proxy, and the PAC file has no secret.
        let is_pac = method == "GET" && target.split('?').next() == Some(PAC);
        let host = fields(request, "host").next().and_then(|host| str::from_utf8(host).ok());
        let pac = || Request::Pac(host.and_then(|host| destination(host, Some(80))));
        return if is_pac { Ok(pac()) } else { Err(Refusal::NoProxyRequest) };
    }
    if let Some(required) = required
        && !shows(request, required)
    {
        return Err(Refusal::Password);
    }
    if method == "CONNECT" {
        let to = destination(target, None).ok_or(Refusal::Nonsense)?;
        return Ok(Request::Tunnel(to));
    }
    let (scheme, rest) = target.split_once("://").ok_or(Refusal::NoProxyRequest)?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Refusal::OtherScheme);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let to = destination(authority, Some(80)).ok_or(Refusal::Nonsense)?;
    let body = length_of_body(request)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let version = request.version.unwrap_or(1);
    let mut head = format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {authority}\r\n").into_bytes();
    let named = |name: &str| {
        let words = fields(request, "connection").flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    for field in request.headers.iter() {
        let is = |other: &&str| field.name.eq_ignore_ascii_case(other);
        // The length is written below, whatever `Connection` names.
        let is_ours = ["host", "content-length"].iter().chain(&OF_THE_CONNECTION).any(is);
        if !is_ours && !named(field.name) {
            head.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
        }
    }
    if fields(request, "content-length").next().is_some() {
        head.extend(format!("Content-Length: {body}\r\n").into_bytes());
    }
    head.extend_from_slice(b"Via: 1.1 plait\r\nConnection: close\r\n\r\n");
    let is_idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].contains(&method);
    Ok(Request::Page { to, head, body, is_idempotent })
}

/// The values of all fields of this name, in lower case.
fn fields<'a>(request: &'a httparse::Request<'_, '_>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// RFC 9112, section 6.3. The end of a body in pieces is in the body, which is not read here.
fn length_of_body(request: &httparse::Request<'_, '_>) -> Result<u64, Refusal> {
    if fields(request, "transfer-encoding").next().is_some() {
        return Err(Refusal::LengthRequired);
    }
    let mut lengths = fields(request, "content-length").map(|value| {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = str::from_utf8(value).ok().filter(|_| is_number);
        text.and_then(|text| text.parse().ok()).ok_or(Refusal::Nonsense)
    });
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) => length,
        (Some(_), Some(_)) => Err(Refusal::Nonsense),
    }
}

/// Whether a request has these credentials (RFC 7617).
fn shows(request: &httparse::Request<'_, '_>, required: &Credentials) -> bool {
    let Some(value) = fields(request, "proxy-authorization").next() else { return false };
    let text = String::from_utf8_lossy(value);
    let Some((scheme, shown)) = text.trim().split_once(' ') else { return false };
    let expected = Base64::encode_string(format!("{}:{}", required.user, required.password).as_bytes());
    scheme.eq_ignore_ascii_case("basic") && bool::from(shown.trim().as_bytes().ct_eq(expected.as_bytes()))
}

/// `HOST:PORT`; an address of IPv6 is in brackets.
fn destination(authority: &str, default_port: Option<u16>) -> Option<Destination> {
    // A user and a password in an address are no part of the host.
    if authority.contains('@') {
        return None;
    }
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return (address.port() != 0).then_some(Destination::Address(address));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, default_port?),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = address.parse::<IpAddr>() {
        return (port != 0).then_some(Destination::Address((address, port).into()));
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = (1..=255).contains(&host.len()) && host.bytes().all(is_letter);
    (is_name && port != 0).then(|| Destination::Name(host.to_owned(), port))
}

/// The answer to CONNECT, once the destination is reached.
pub const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The PAC file of the proxy at this address.
pub fn pac(at: &Destination) -> Vec<u8> {
    let script = format!(
        "function FindProxyForURL(url, host) {{\n  \
         if (host === \"localhost\" || host === \"127.0.0.1\" || host === \"::1\" || dnsDomainIs(host, \".localhost\")) return \"DIRECT\";\n  \
         return \"PROXY {at}\";\n}}\n"
    );
    answer("200 OK", "application/x-ns-proxy-autoconfig", "", &script)
}

/// The answer about a destination that was not reached; `None`: the connection to the server failed.
pub fn failure(code: Option<ErrorCode>) -> Vec<u8> {
    let (status, why) = match code {
        Some(code @ ErrorCode::NotAuthorized) => ("403 Forbidden", code.to_string()),
        Some(
            code @ (ErrorCode::NetworkFailure
            | ErrorCode::DestinationUnreachable
            | ErrorCode::ConnectionReset),
        ) => ("502 Bad Gateway", code.to_string()),
        Some(
            code @ (ErrorCode::UnsupportedVersion
            | ErrorCode::MalformedMessage
            | ErrorCode::UnsupportedMessage
            | ErrorCode::MissingCookie
            | ErrorCode::UnsupportedTcpOption
            | ErrorCode::ResourceExceeded
            | ErrorCode::Other(_)),
        ) => ("503 Service Unavailable", code.to_string()),
        None => ("503 Service Unavailable", "the server of plait cannot be reached".to_owned()),
    };
    answer(status, "text/plain; charset=utf-8", "", &format!("plait: {why}\n"))
}

fn refusal(why: Refusal) -> Vec<u8> {
    let (status, field, text) = match why {
        Refusal::Nonsense => ("400 Bad Request", "", "the request makes no sense"),
        Refusal::NoProxyRequest => ("400 Bad Request", "", "this is a proxy, and its PAC file is /proxy.pac"),
        Refusal::OtherScheme => ("400 Bad Request", "", "only http:// addresses; others by CONNECT"),
        Refusal::LengthRequired => ("411 Length Required", "", "a body needs a Content-Length"),
        Refusal::TooLong => ("431 Request Header Fields Too Large", "", "the request is too long"),
        Refusal::Password => (
            "407 Proxy Authentication Required",
            "Proxy-Authenticate: Basic realm=\"plait\", charset=\"UTF-8\"\r\n",
            "user name and password, please",
        ),
    };
    answer(status, "text/plain; charset=utf-8", field, &format!("plait: {text}\n"))
}

fn answer(status: &str, kind: &str, field: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{field}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: u16) -> Destination {
        Destination::Name(host.to_owned(), port)
    }

    fn request(text: &str) -> Request {
        match read(text.as_bytes(), None) {
            Read::Request(request, len) => {
                assert_eq!(len, text.find("\r\n\r\n").expect("an end") + 4);
                request
            }
            other => panic!("a request, not {other:?}"),
        }
    }

    fn status(text: &str, required: Option<&Credentials>) -> String {
        match read(text.as_bytes(), required) {
            Read::Refuse(answer) => String::from_utf8(answer).expect("text")[9..12].to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn connect_names_a_destination() {
        let tunnel = |to: &str| request(&format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly"));
        assert_eq!(tunnel("web.example:443"), Request::Tunnel(name("web.example", 443)));
        let v6 = Destination::Address("[2001:db8::7]:443".parse().expect("an address"));
        assert_eq!(tunnel("[2001:db8::7]:443"), Request::Tunnel(v6));
        for bad in [
            "web.example",
            "web.example:0",
            "web.example:70000",
            ":443",
            "a b:1",
            "user@web.example:1",
            "[::1:1",
        ] {
            assert_eq!(status(&format!("CONNECT {bad} HTTP/1.1\r\n\r\n"), None), "400", "{bad}");
        }
    }

    #[test]
    fn a_page_is_asked_for_as_its_host_expects_it() {
        let text = "POST http://Web.example/a?b=c HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: keep-alive\r\n\
                    Connection: X-Hop, Content-Length\r\nX-Hop: 1\r\nUpgrade: h2c\r\nContent-Length: 5\r\nAccept: */*\r\n\r\nhello";
        let head = "POST /a?b=c HTTP/1.1\r\nHost: Web.example\r\nAccept: */*\r\nContent-Length: 5\r\nVia: 1.1 plait\r\n\
                    Connection: close\r\n\r\n";
        let to = name("Web.example", 80);
        let page = Request::Page { to, head: head.into(), body: 5, is_idempotent: false };
        assert_eq!(request(text), page);
        let Request::Page { to, head, body, is_idempotent: true } =
            request("GET http://[::1]:8080?x HTTP/1.0\r\n\r\n")
        else {
            panic!("a page")
        };
        assert_eq!((to.to_string().as_str(), body), ("[::1]:8080", 0));
        assert!(
            head.starts_with(b"GET /?x HTTP/1.0\r\nHost: [::1]:8080\r\n"),
            "{}",
            String::from_utf8_lossy(&head)
        );
    }

    #[test]
    fn a_body_without_one_length_is_refused() {
        let with =
            |fields: &str| status(&format!("POST http://web.example/ HTTP/1.1\r\n{fields}\r\n\r\n"), None);
        assert_eq!(with("Transfer-Encoding: chunked"), "411");
        assert_eq!(with("Content-Length: 1\r\nTransfer-Encoding: chunked"), "411");
        for bad in ["1\r\nContent-Length: 2", "1, 1", "+1", "-1", "", "99999999999999999999"] {
            assert_eq!(with(&format!("Content-Length: {bad}")), "400", "{bad}");
        }
    }

    #[test]
    fn a_password_is_asked_for_and_checked() {
        let ada = Credentials { user: "ada".into(), password: "lace".into() };
        let with = |shown: &str| {
            let text = format!("CONNECT web.example:443 HTTP/1.1\r\nProxy-Authorization: {shown}\r\n\r\n");
            matches!(read(text.as_bytes(), Some(&ada)), Read::Request(Request::Tunnel(_), _))
        };
        assert!(with("Basic YWRhOmxhY2U=") && with("basic  YWRhOmxhY2U="));
        assert!(
            !with("Basic YWRhOmxhY2Y=") && !with("Bearer YWRhOmxhY2U=") && !with("YWRhOmxhY2U=") && !with("")
        );
        assert_eq!(status("CONNECT web.example:443 HTTP/1.1\r\n\r\n", Some(&ada)), "407");
        assert_eq!(status("GET http://web.example/ HTTP/1.1\r\n\r\n", Some(&ada)), "407");
        let pac = read(b"GET /proxy.pac HTTP/1.1\r\nHost: gw.example:3128\r\n\r\n", Some(&ada));
        let Read::Request(Request::Pac(Some(at)), _) = pac else {
            panic!("a browser has no password: {pac:?}")
        };
        assert_eq!(at, name("gw.example", 3128));
    }

    #[test]
    fn what_is_no_request_to_a_proxy_says_so() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", "400"),
            ("GET https://web.example/ HTTP/1.1\r\n\r\n", "400"),
            ("OPTIONS * HTTP/1.1\r\n\r\n", "400"),
            ("\x16\x03\x01\x02\x00", "400"),
        ] {
            assert_eq!(status(text, None), expected, "{text:?}");
        }
        let long = format!("GET http://web.example/{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD));
        assert_eq!(status(&long, None), "431");
        assert_eq!(read(b"CONNECT web.exa", None), Read::More);
    }
}
