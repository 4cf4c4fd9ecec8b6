//! Stock Wireshark as a third reader of what the subject sends and receives.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::interop::middlebox::Strip;
use crate::interop::scenario::{BOTH, Context, Role, Scenario, Verdict};
use crate::interop::session::{PORT, Plan, Session, Use};
use plait_lab::wired::{Shape, Testbed};

pub(crate) const ALL: &[Scenario] = &[Scenario {
    name: "wireshark",
    about: "what --pcap writes decodes in tshark without an expert error: two paths, options of all kinds, fallback",
    roles: BOTH,
    run: decoding,
}];

/// Both ways; some hundred packets are enough.
const BYTES: u64 = 3_000_000;

fn decoding(context: &Context<'_>) -> Result<Verdict> {
    if context.is_baseline() {
        return Ok(Verdict::NotApplicable("the kernel writes no capture"));
    }
    let multipath = multipath(context)?;
    let devices: BTreeSet<&str> = multipath.packets.iter().map(|packet| packet.device.as_str()).collect();
    ensure!(devices == ["p1", "p2"].into(), "packets of the devices {devices:?}");
    let kinds: BTreeSet<&str> = multipath.kinds().collect();
    // MP_CAPABLE, MP_JOIN, DSS, ADD_ADDR, MP_PRIO (RFC 8684, section 8.1).
    let expected = ["0", "1", "2", "3", "5"];
    ensure!(expected.iter().all(|kind| kinds.contains(kind)), "options of the subtypes {kinds:?} only");
    let fallback = fallback(context)?;
    ensure!(fallback.packets.last().is_some_and(|last| last.kinds.is_empty()), "no fallback to plain TCP");
    Ok(Verdict::Passed(format!(
        "{} packets of two paths with subtypes {kinds:?}, {} of a connection that fell back: no expert error",
        multipath.packets.len(),
        fallback.packets.len()
    )))
}

/// Checksums, a join, announced addresses and a change of priority.
fn multipath(context: &Context<'_>) -> Result<Decoded> {
    let bed = Testbed::new(Shape::Routed)?;
    bed.limit(50)?;
    let mut plan =
        Plan { is_captured: true, is_controlled: true, checksum: true, ..Plan::two_paths(context, &bed) };
    if context.role == Role::Server {
        // The kernel joins what is announced to it: the second path, whose priority changes.
        (plan.peer_endpoints, plan.peer_accepts_announced) = (Vec::new(), true);
    }
    let mut session = Session::start(context, &bed, plan.moving(BYTES, BYTES))?;
    session.wait_for_bytes(BYTES / 2)?;
    session.use_second_path(Use::Backup)?;
    let file = session.capture_file();
    session.finish()?.verify()?;
    Decoded::read(&file)
}

fn fallback(context: &Context<'_>) -> Result<Decoded> {
    let bed = Testbed::new(Shape::Routed)?;
    let _rule = Strip::SynAck.install(bed.router(1)?)?;
    let plan = Plan { is_captured: true, ..Plan::default() }.moving(BYTES, BYTES);
    let session = Session::start(context, &bed, plan)?;
    let file = session.capture_file();
    session.finish()?.verify()?;
    Decoded::read(&file)
}

/// A capture as tshark reads it.
struct Decoded {
    packets: Vec<Packet>,
}

struct Packet {
    device: String,
    /// Subtypes of its MPTCP options.
    kinds: Vec<String>,
}

/// Severity "Error" of an expert information, as tshark numbers it (`PI_ERROR`).
const ERROR: &str = "8388608";

impl Decoded {
    /// Fails if there is an expert error in it.
    fn read(file: &Path) -> Result<Self> {
        let mut command = Command::new("tshark");
        // The payload is nothing but bytes: left to itself tshark takes some of them for a protocol that they are not.
        command.arg("-d").arg(format!("tcp.port=={PORT},data"));
        command.arg("-r").arg(file).args([
            "-o",
            "mptcp.analyze_mptcp:TRUE",
            "-T",
            "fields",
            "-E",
            "aggregator=;",
        ]);
        for field in
            ["frame.interface_name", "tcp.options.mptcp.subtype", "_ws.expert.severity", "_ws.expert.message"]
        {
            command.args(["-e", field]);
        }
        let output = command.output().context("start tshark (scripts/setup installs it)")?;
        ensure!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let mut packets = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut fields = line.split('\t').map(|field| field.split(';').map(str::to_owned));
            let mut next = || -> Vec<String> {
                fields.next().into_iter().flatten().filter(|value| !value.is_empty()).collect()
            };
            let (device, kinds, severities, messages) = (next(), next(), next(), next());
            ensure!(
                !severities.iter().any(|severity| severity == ERROR),
                "packet {} of {}: {}",
                number + 1,
                file.display(),
                messages.join("; ")
            );
            packets.push(Packet { device: device.concat(), kinds });
        }
        ensure!(packets.len() > 10, "only {} packets in {}", packets.len(), file.display());
        Ok(Self { packets })
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        self.packets.iter().flat_map(|packet| packet.kinds.iter().map(String::as_str))
    }
}
