//! Routers with a smaller MTU than the devices of the hosts.

use anyhow::{Result, ensure};
use plait_netns::Namespace;
use plait_netns::nft::Table;

use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{Plan, Session};
use plait_lab::wired::{PATHS, Shape, Testbed};

/// The MTU of the routers, in bytes of a packet; the devices of the hosts have 1500.
const PASSED: u32 = 1300;

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: "path-mtu",
        about: "routers pass 1300 bytes and say so by ICMP: both sides send what fits",
        roles: BOTH,
        run: |context| narrow(context, Icmp::Said),
    },
    Scenario {
        name: "path-mtu-in-silence",
        about: "routers pass 1300 bytes, and their ICMP is lost: both sides find out (RFC 8899, RFC 4821)",
        roles: BOTH,
        run: |context| narrow(context, Icmp::Lost),
    },
];

/// The handling of "fragmentation needed" and "packet too big".
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Icmp {
    Said,
    Lost,
}

/// The rules of a router that count what it says to each of the sides.
pub(super) struct Router {
    to_client: Table,
    to_server: Table,
}

fn narrow(context: &Context<'_>, icmp: Icmp) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    let peer = match context.role {
        Role::Client => &bed.server,
        Role::Server => &bed.client,
    };
    if icmp == Icmp::Lost {
        // Linux finds out by itself only if told to.
        peer.set_sysctl("net.ipv4.tcp_mtu_probing", 1)?;
    }
    let routers =
        PATHS.map(|path| Router::of(bed.router(path)?, path, PASSED, icmp)).collect::<Result<Vec<_>>>()?;
    let bytes = context.bytes_for(2, 200);
    let plan = Plan::two_paths(context, &bed);
    let outcome = Session::run(context, &bed, plan.moving(bytes, bytes))?;
    outcome.verify()?;
    outcome.expect_mptcp()?;
    let said = |to: fn(&Router) -> &Table| -> Result<u64> {
        routers.iter().map(|router| to(router).packets().map_err(Into::into)).sum()
    };
    let [client, server] = [said(|router| &router.to_client)?, said(|router| &router.to_server)?];
    let verb = if icmp == Icmp::Said { "said" } else { "lost" };
    let figures = format!(
        "{verb} to the client {client} times and to the server {server} times that a packet is too big"
    );
    // A host without a report has sent no packet that is too big: then the path MTU was not found.
    ensure!(client > 0 && server > 0, "{figures}");
    Ok(Verdict::Passed(format!("{figures}; {}", outcome.evidence())))
}

impl Router {
    /// Lets the routes of a router pass less, and counts what it says about that.
    pub(super) fn of(router: &Namespace, path: u8, passed: u32, icmp: Icmp) -> Result<Self> {
        for (side, device) in [(1, "c"), (2, "s")] {
            for network in PATHS {
                let is_direct = network == path;
                let [v4, v6] = if is_direct {
                    ["scope link".to_owned(), "metric 256".to_owned()]
                } else {
                    [format!("via 10.{side}.{path}.2"), format!("via fd00:{side}:{path}::2")]
                };
                router.ip(&format!(
                    "-4 route change 10.{side}.{network}.0/24 {v4} dev {device} mtu lock {passed}"
                ))?;
                router.ip(&format!(
                    "-6 route change fd00:{side}:{network}::/64 {v6} dev {device} mtu {passed}"
                ))?;
            }
        }
        let table = |device: &str| {
            let verdict = if icmp == Icmp::Said { "accept" } else { "drop" };
            let rule = |kind: &str| format!("oifname \"{device}\" {kind} counter {verdict}");
            let rules = [
                rule("icmp type destination-unreachable icmp code frag-needed"),
                rule("icmpv6 type packet-too-big"),
            ];
            Table::install(
                router,
                &format!("chain o {{ type filter hook output priority 0;\n{}\n}}", rules.join("\n")),
            )
        };
        Ok(Self { to_client: table("c")?, to_server: table("s")? })
    }
}
