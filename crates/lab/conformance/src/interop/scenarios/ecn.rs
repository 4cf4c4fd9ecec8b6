//! Explicit congestion notification (RFC 3168).

use anyhow::{Result, ensure};

use crate::interop::middlebox::mark_some;
use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{Plan, Session};
use plait_lab::wired::{Shape, Testbed};

/// `net.ipv4.tcp_ecn`: asked for and agreed to; agreed to.
const ASK: u32 = 1;
const ANSWER: u32 = 2;

pub(crate) const ALL: &[Scenario] = &[Scenario {
    name: "ecn",
    about: "the client asks for ECN, and the path marks packets of both sides instead of dropping them",
    roles: BOTH,
    run: marked,
}];

fn marked(context: &Context<'_>) -> Result<Verdict> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(200)?;
    bed.client.set_sysctl("net.ipv4.tcp_ecn", ASK)?;
    bed.server.set_sysctl("net.ipv4.tcp_ecn", ANSWER)?;
    let rule = mark_some(bed.router(1)?)?;
    let peer = match context.role {
        Role::Client => &bed.server,
        Role::Server => &bed.client,
    };
    let before = peer.counters()?;
    let bytes = context.bytes_for(2, 200);
    let plan = Plan { ecn: Some(context.role == Role::Client), ..Plan::default() };
    let outcome = Session::run(context, &bed, plan.moving(bytes, bytes))?;
    outcome.verify()?;
    let counters = peer.counters()?.since(&before);
    let received =
        |name: &str| counters.count(&format!("IpExt{name}")) + counters.count(&format!("Ip6{name}"));
    let [capable, marked] = [received("InECT0Pkts"), received("InCEPkts")];
    let echoed = counters.count("TcpExtTCPDeliveredCE");
    let figures = format!(
        "the kernel received {capable} ECN-capable packets and {marked} marked ones, and heard of {echoed} of its own that were marked; \
         the path marked {}",
        rule.packets()?
    );
    ensure!(capable > 0 && marked > 0, "what the subject sends is not marked: {figures}");
    ensure!(echoed > 0, "the subject echoes no mark: {figures}");
    Ok(Verdict::Passed(format!("{figures}; {}", outcome.evidence())))
}
