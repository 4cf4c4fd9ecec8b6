//! Datagrams beside the stream of a sealed connection: every choice of paths, pieces, and the records of the stream.

use bytes::Bytes;
use plait_base::Duration;
use plait_endpoint::ConnectionId;
use plait_handshake::Tep;
use plait_mptcp::{Capabilities, Config, PathChoice, Protect};
use plait_sim::{CloseMode, LinkConfig, Loss, Pair, Workload, plain_link};

use crate::TWO_V4;
use crate::scenario::Scenario;
use crate::sealed::sealed;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let of = |name, seed, choice, over_udp, len| {
        Scenario::new(name, seed, TWO_V4, move |pair: &mut Pair| speak(pair, choice, over_udp, len))
    };
    vec![
        of("tcpcrypt-datagrams-fastest", 500, PathChoice::Fastest, true, 160),
        of("tcpcrypt-datagrams-duplicate", 501, PathChoice::Duplicate, true, 160),
        of("tcpcrypt-datagrams-spread-in-pieces", 502, PathChoice::Spread, true, 3000),
        of("tcpcrypt-datagrams-in-the-stream", 503, PathChoice::Fastest, false, 160),
        of("tcpcrypt-datagrams-lost", 504, PathChoice::Duplicate, true, 200).through(|pair| {
            let model = LinkConfig { loss: Loss::Bernoulli { probability: 0.2 }, ..plain_link() };
            pair.link(0, model);
        }),
    ]
}

/// Forty datagrams from the client, each answered by the server, and the end of their flow.
fn speak(pair: &mut Pair, choice: PathChoice, over_udp: bool, len: usize) {
    for path in pair.paths.clone() {
        for host in [pair.client, pair.server] {
            pair.world.change_path(host, path, |path| path.datagrams = over_udp);
        }
    }
    let config = sealed(Tep::TcpcryptCurve25519);
    let Protect::Sealed(mut settings) = config.protect else { panic!("it is sealed") };
    settings.capabilities = Capabilities::SUPPORTED;
    let config = Config { protect: Protect::Sealed(settings), ..config };
    let idle = Workload::of(1000).leaving(CloseMode::Waiting);
    pair.serve(&config, idle);
    let id = pair.open(&config, idle);
    pair.world.run_for(Duration::from_secs(1));
    let flow = pair.world.with_endpoint(pair.client, |now, endpoint| {
        endpoint.open_flow(now, id, Bytes::from_static(b"echo:7"), choice).expect("both take datagrams")
    });
    for number in 0..40 {
        pair.world.with_endpoint(pair.client, |now, endpoint| {
            let payload = Bytes::from(vec![number; len]);
            endpoint.send_datagram(now, id, flow, number % 4, payload).expect("it is open");
        });
        pair.world.run_for(Duration::from_millis(20));
        answer(pair);
    }
    pair.world.run_for(Duration::from_secs(1));
    pair.world.with_endpoint(pair.client, |now, endpoint| endpoint.close_flow(now, id, flow));
    pair.world.run_for(Duration::from_secs(1));
    answer(pair);
    pair.world.with_endpoint(pair.client, |now, endpoint| endpoint.finish(now, id));
    pair.world.run_for(Duration::from_secs(2));
}

/// Sends back what has arrived at the server, and closes the flows that have ended.
fn answer(pair: &mut Pair) {
    let server: Vec<ConnectionId> = pair.world.applications(pair.server).map(|(id, _)| id).collect();
    for id in server {
        pair.world.with_endpoint(pair.server, |now, endpoint| {
            while endpoint.accept_flow(id).is_some() {}
            while let Some(news) = endpoint.poll_flow_news(id) {
                let plait_mptcp::FlowNews::Flow(flow) = news else { continue };
                loop {
                    match endpoint.receive_datagram(id, flow) {
                        Ok(Some(datagram)) => {
                            let (ecn, payload) = (datagram.ecn, datagram.payload);
                            assert!(
                                endpoint.send_datagram(now, id, flow, ecn, payload).is_ok(),
                                "it is open"
                            );
                        }
                        Ok(None) => break,
                        Err(_) => {
                            endpoint.close_flow(now, id, flow);
                            break;
                        }
                    }
                }
            }
        });
    }
}
