//! Requests of clients, and what becomes of them.

use std::future::Ready;
use std::net::SocketAddr;
use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::net::TcpListener;

use super::*;
use crate::asked::asked;
use crate::request::{Answer, RequestError, answer, ask};
use crate::services::NamedService;

static UNLIMITED: LazyLock<SilenceLimit> = LazyLock::new(|| SilenceLimit::new(None));

fn introduction() -> Introduction<'static> {
    let [from, to] = ["192.0.2.1:40000", "198.51.100.1:7443"].map(|text| text.parse().expect(text));
    Introduction { from, to, name: Some("ada"), key: None }
}

/// A client without an identity.
fn any_client(own_rules: Option<&[Rule]>) -> Client<'_> {
    Client {
        instance: Some(Instance([3; 16])),
        introduction: introduction(),
        own_rules,
        heard: &|_| {},
        joined: &|_| {},
        silence: &UNLIMITED,
    }
}

/// A server that sends back what it gets, in capitals.
async fn shouting_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.expect("text");
            stream.write_all(&text.to_ascii_uppercase()).await.expect("room");
        }
    });
    address
}

fn forwarder(to: &str) -> Service {
    Service::Forward(to.parse().expect("a service"))
}

fn proxy(rules: &[String]) -> Service {
    let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    Service::Proxy { rules, nameservers: Nameservers::given([]), services: Services::default() }
}

/// Serves a stream that may not wait.
async fn served(stream: &mut DuplexStream, service: &Service, client: Client<'_>) -> io::Result<Outcome> {
    let asked = asked(stream, service, client.instance, || None::<Ready<()>>).await?;
    serve(stream, asked, service, client).await
}

async fn ask_for(service: Service, own: Option<Vec<Rule>>, to: Destination) -> Result<Vec<u8>, RequestError> {
    let (mut client, mut server) = duplex(64 * 1024);
    tokio::spawn(async move { served(&mut server, &service, any_client(own.as_deref())).await });
    ask(&mut client, to).await?;
    client.write_all(b"hello").await?;
    client.shutdown().await?;
    let Answer { instance, first: mut got } = answer(&mut client).await?;
    assert_eq!(instance, Some(Instance([3; 16])), "a served client learns the instance");
    client.read_to_end(&mut got).await?;
    Ok(got)
}

fn code(result: Result<Vec<u8>, RequestError>) -> ErrorCode {
    match result {
        Err(RequestError::Refused(code)) => code,
        other => panic!("a refusal, not {other:?}"),
    }
}

#[tokio::test]
async fn an_allowed_destination_is_reached_and_half_closed_both_ways() {
    let at = shouting_server().await;
    let service = proxy(&[format!("127.0.0.1:{}", at.port())]);
    let got = ask_for(service, None, Destination::Address(at)).await.expect("connected");
    assert_eq!(got, b"HELLO");
}

#[tokio::test]
async fn a_name_is_resolved_by_the_server_and_bound_by_rules_for_its_address() {
    let at = shouting_server().await;
    let to = || Destination::Name("localhost".into(), at.port());
    let by_address = proxy(&["127.0.0.0/8:*".into(), "[::1]:*".into()]);
    assert_eq!(ask_for(by_address, None, to()).await.expect("connected"), b"HELLO");
    let by_name = proxy(&["localhost:*".into()]);
    assert_eq!(code(ask_for(by_name, None, to()).await), ErrorCode::NotAuthorized);
}

/// A nameserver with this one address for each name.
async fn nameserver(ip: [u8; 4]) -> Nameservers {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let len = stream.read_u16().await.expect("a length");
            let mut answer = vec![0; len.into()];
            stream.read_exact(&mut answer).await.expect("a query");
            (answer[2], answer[3], answer[7]) = (0x81, 0x80, 1);
            answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
            answer.extend(ip);
            let len = u16::try_from(answer.len()).expect("short").to_be_bytes();
            stream.write_all(&[&len[..], &answer].concat()).await.expect("room");
        }
    });
    Nameservers::given([at])
}

#[tokio::test]
async fn a_rule_by_name_allows_an_address_only_if_the_nameserver_of_the_server_says_that_the_name_has_it() {
    let resolved = async |rules: &[&str], own: Option<&str>, to: [u8; 4], names: &[&str], has: [u8; 4]| {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        let own: Option<Vec<Rule>> = own.map(|own| vec![own.parse().expect("a rule")]);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let to = Destination::Named((to, 80).into(), names);
        let found = resolve(&to, &rules, own.as_deref(), &nameserver(has).await).await;
        found.map(|found| found[0].ip().to_string()).map_err(|unreached| unreached.code())
    };
    let (at, elsewhere, refused) = ([192, 0, 2, 1], [192, 0, 2, 2], Err(ErrorCode::NotAuthorized));
    let by_name = ["*.example:80"];
    let is = |text: &str| Ok(text.to_owned());
    assert_eq!(resolved(&by_name, None, at, &["a.example"], at).await, is("192.0.2.1"));
    assert_eq!(resolved(&by_name, None, at, &["a.invalid", "a.example"], at).await, is("192.0.2.1"));
    assert_eq!(resolved(&["192.0.2.1:80"], None, at, &["a.invalid"], elsewhere).await, is("192.0.2.1"));
    // What the client says of an address does not count: the server goes where the name is.
    assert_eq!(resolved(&by_name, None, at, &["a.example"], elsewhere).await, is("192.0.2.2"));
    assert_eq!(resolved(&by_name, None, at, &["a.invalid"], at).await, refused);
    assert_eq!(resolved(&["*.example:443"], None, at, &["a.example"], at).await, refused);
    // The rules of the client apply as well.
    assert_eq!(resolved(&by_name, Some("10.0.0.0/8:*"), at, &["a.example"], at).await, refused);
    assert_eq!(resolved(&by_name, Some("a.example:80"), at, &["a.example"], at).await, is("192.0.2.1"));
    // A name under the control of the client does not lead to the server itself or its link.
    for local in [[127, 0, 0, 1], [169, 254, 169, 254], [224, 0, 0, 1]] {
        assert_eq!(resolved(&by_name, None, local, &["a.example"], local).await, refused, "{local:?}");
        assert_eq!(resolved(&by_name, None, at, &["a.example"], local).await, refused, "{local:?}");
    }
}

#[tokio::test]
async fn a_client_that_asks_for_no_destination_learns_that_it_is_accepted() {
    let to_one = Service::Forward("127.0.0.1:1".parse().expect("a service"));
    for service in [proxy(&["10.0.0.0/8:443".into()]), to_one] {
        assert_eq!(ask_for(service, None, Destination::Nowhere).await.expect("welcome"), b"");
    }
}

#[tokio::test]
async fn a_client_is_bound_by_its_own_rules_too() {
    let at = shouting_server().await;
    let service = proxy(&["127.0.0.1:*".into()]);
    let own = vec!["10.0.0.0/8:*".parse().expect("a rule")];
    assert_eq!(code(ask_for(service, Some(own), Destination::Address(at)).await), ErrorCode::NotAuthorized);
}

#[tokio::test]
async fn refused_and_unknown_destinations_are_told_apart() {
    let service = || proxy(&["127.0.0.1:*".into(), "*.invalid:*".into()]);
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let result = ask_for(service(), None, Destination::Address(closed)).await;
    assert_eq!(code(result), ErrorCode::ConnectionReset);
    let nowhere = Destination::Name("nowhere.invalid".into(), 80);
    assert_eq!(code(ask_for(service(), None, nowhere).await), ErrorCode::DestinationUnreachable);
    let result = ask_for(service(), None, Destination::Resolver).await;
    assert_eq!(code(result), ErrorCode::DestinationUnreachable);
}

#[tokio::test]
async fn a_forwarder_answers_a_client_that_asks_and_has_no_resolver() {
    let at = shouting_server().await;
    let service = || forwarder(&at.to_string());
    let anywhere = || Destination::Name("anywhere.example".into(), 1);
    assert_eq!(ask_for(service(), None, anywhere()).await.expect("connected"), b"HELLO");
    let result = ask_for(service(), None, Destination::Resolver).await;
    assert_eq!(code(result), ErrorCode::DestinationUnreachable);
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let result = ask_for(forwarder(&closed.to_string()), None, anywhere()).await;
    assert_eq!(code(result), ErrorCode::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_lets_a_service_speak_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"220 ready").await.expect("room");
    });
    let (mut client, mut server) = duplex(64 * 1024);
    tokio::spawn(async move { served(&mut server, &forwarder(&at.to_string()), any_client(None)).await });
    let mut got = [0; 9];
    client.read_exact(&mut got).await.expect("a greeting");
    assert_eq!(&got, b"220 ready");
}

#[tokio::test]
async fn a_forwarder_asks_nothing() {
    let at = shouting_server().await;
    let (mut client, mut server) = duplex(64 * 1024);
    tokio::spawn(async move { served(&mut server, &forwarder(&at.to_string()), any_client(None)).await });
    client.write_all(b"hello").await.expect("room");
    client.shutdown().await.expect("half-closed");
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.expect("an answer");
    assert_eq!(got, b"HELLO");
}

#[tokio::test]
async fn a_client_that_may_not_go_to_the_service_of_a_forwarder_does_not_reach_it() {
    let at = shouting_server().await;
    let by_name = format!("localhost:{}", at.port());
    for (service, rule, is_allowed) in [
        (at.to_string(), "10.0.0.0/8:443".to_owned(), false),
        (at.to_string(), "127.0.0.1:1".to_owned(), false),
        (at.to_string(), "*:*".to_owned(), false),
        (at.to_string(), format!("127.0.0.0/8:{}", at.port()), true),
        (by_name.clone(), "10.0.0.0/8:*".to_owned(), false),
        (by_name.clone(), "localhost:*".to_owned(), false),
        (by_name, "127.0.0.0/8:*".to_owned(), true),
    ] {
        let own = vec![rule.parse().expect("a rule")];
        let anywhere = Destination::Name("anywhere.example".into(), 1);
        let result = ask_for(forwarder(&service), Some(own.clone()), anywhere).await;
        if is_allowed {
            assert_eq!(result.expect("it may"), b"HELLO", "{service} by {rule}");
            continue;
        }
        assert_eq!(code(result), ErrorCode::NotAuthorized, "{service} by {rule}");
        // Nor one that does not ask.
        let (mut client, mut server) = duplex(64 * 1024);
        let served = async { served(&mut server, &forwarder(&service), any_client(Some(&own))).await };
        let (outcome, written) = tokio::join!(served, client.write_all(b"hello"));
        written.expect("room");
        let refused = matches!(outcome, Ok(Outcome::Refused { code: ErrorCode::NotAuthorized, .. }));
        assert!(refused, "{outcome:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_in_the_file_system_is_reached_if_its_rule_or_that_of_the_client_allows_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("app").to_str().expect("text").to_owned();
    let listener = tokio::net::UnixListener::bind(&path).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.expect("text");
            stream.write_all(&text.to_ascii_uppercase()).await.expect("room");
        }
    });
    let own = |rule: &str| Some(vec![rule.parse().expect("a rule")]);
    let (rule, socket) = (format!("unix:{path}"), || Destination::Socket(path.clone()));
    let open = proxy(std::slice::from_ref(&rule));
    assert_eq!(ask_for(open.clone(), None, socket()).await.expect("connected"), b"HELLO");
    assert_eq!(ask_for(open.clone(), own(&rule), socket()).await.expect("connected"), b"HELLO");
    assert_eq!(code(ask_for(open, own("*:*"), socket()).await), ErrorCode::NotAuthorized);
    assert_eq!(code(ask_for(proxy(&["*:*".into()]), None, socket()).await), ErrorCode::NotAuthorized);
    let anywhere = || Destination::Name("anywhere.example".into(), 1);
    assert_eq!(ask_for(forwarder(&rule), None, anywhere()).await.expect("connected"), b"HELLO");
    assert_eq!(code(ask_for(forwarder(&rule), own("*:*"), anywhere()).await), ErrorCode::NotAuthorized);
    std::fs::remove_file(&path).expect("there");
    let gone = ask_for(proxy(&[rule]), None, socket()).await;
    assert_eq!(code(gone), ErrorCode::DestinationUnreachable);
}

#[tokio::test]
async fn a_service_is_reached_by_its_name_and_by_clients_that_may_use_it() {
    let at = shouting_server().await;
    let offered = Services::new([format!("shout={at}").parse().expect("a service")]);
    let nameservers = Nameservers::given([]);
    let service =
        || Service::Proxy { rules: Vec::new(), nameservers: nameservers.clone(), services: offered.clone() };
    let named = |name: &str| Destination::Service(name.to_owned());
    let own = |rule: &str| Some(vec![rule.parse().expect("a rule")]);
    assert_eq!(ask_for(service(), None, named("shout")).await.expect("connected"), b"HELLO");
    assert_eq!(ask_for(service(), own("service:shout"), named("shout")).await.expect("connected"), b"HELLO");
    for rule in ["service:other", "*:*", &format!("127.0.0.1:{}", at.port())] {
        for name in ["shout", "unknown"] {
            assert_eq!(
                code(ask_for(service(), own(rule), named(name)).await),
                ErrorCode::NotAuthorized,
                "{rule}"
            );
        }
    }
    assert_eq!(code(ask_for(service(), None, named("unknown")).await), ErrorCode::DestinationUnreachable);
    // Its address is no destination, and there is no resolver.
    assert_eq!(code(ask_for(service(), None, Destination::Address(at)).await), ErrorCode::NotAuthorized);
    assert_eq!(code(ask_for(service(), None, Destination::Resolver).await), ErrorCode::NotAuthorized);
}

#[tokio::test]
async fn a_service_learns_its_client_if_it_is_marked_and_no_other_destination_does() {
    let at = shouting_server().await;
    let header = introduction().header().to_ascii_uppercase();
    let introduced = [&header[..], b"HELLO"].concat();
    let target = |is_introduced| at.to_string().parse::<Target>().expect("one").introduced(is_introduced);
    let anywhere = || Destination::Name("anywhere.example".into(), 1);
    let got = ask_for(Service::Forward(target(true)), None, anywhere()).await.expect("connected");
    assert_eq!(got, introduced);
    let service = || Service::Proxy {
        rules: vec![format!("127.0.0.1:{}", at.port()).parse().expect("a rule")],
        nameservers: Nameservers::given([]),
        services: Services::new([("marked", true), ("other", false)].map(|(name, is_introduced)| {
            NamedService { name: name.to_owned(), target: target(is_introduced) }
        })),
    };
    let named = |name: &str| Destination::Service(name.to_owned());
    assert_eq!(ask_for(service(), None, named("marked")).await.expect("connected"), introduced);
    for to in [named("other"), Destination::Address(at)] {
        assert_eq!(ask_for(service(), None, to).await.expect("connected"), b"HELLO");
    }
}
