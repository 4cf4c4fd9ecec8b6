//! Packet manipulation on a path: rules for the router in its middle.

use std::time::Duration;

use anyhow::Result;
use plait_netns::Namespace;
use plait_netns::nft::Table;

/// The packets that lose their MPTCP options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// From every SYN without ACK.
    Syn,
    /// From every SYN with ACK.
    SynAck,
    /// From all segments but SYNs: the handshake succeeds, then the options are gone.
    AfterHandshake,
    /// From SYNs that join, so that only the first subflow comes up.
    Joins,
}

impl Strip {
    /// Installs the rule in a router.
    pub(crate) fn install(self, router: &Namespace) -> plait_netns::Result<Table> {
        let which = match self {
            Self::Syn => "tcp flags & (syn | ack) == syn",
            Self::SynAck => "tcp flags & (syn | ack) == syn | ack",
            Self::AfterHandshake => "tcp flags & syn == 0",
            Self::Joins => "tcp flags & syn == syn tcp option mptcp subtype 1",
        };
        forward(router, &format!("{which} tcp option mptcp exists counter reset tcp option mptcp"))
    }
}

/// Changes one byte of the payload of one large segment forwarded to `device`. The TCP checksum stays right: on veth it is filled in
/// by the receiver's side, after the change, so that only a DSS checksum can notice.
pub(crate) fn corrupt_one_segment(router: &Namespace, device: &str) -> plait_netns::Result<Table> {
    // The byte is 100 bytes after the start of the TCP header: in the payload whatever the options (60 bytes at most). All its bits
    // are inverted: a fixed value would change nothing in one of 256 segments.
    forward(
        router,
        &format!(
            "oifname \"{device}\" meta l4proto tcp meta length > 1000 \
             limit rate 1/day burst 1 packets counter @th,800,8 set @th,800,8 ^ 0xff"
        ),
    )
}

/// Answers every packet forwarded here with a TCP reset to its sender.
pub(crate) fn reset_everything(router: &Namespace) -> plait_netns::Result<Table> {
    forward(router, "meta l4proto tcp counter reject with tcp reset")
}

/// Marks some ECN-capable packets with "congestion experienced" (RFC 3168), both ways.
pub(crate) fn mark_some(router: &Namespace) -> plait_netns::Result<Table> {
    let rule =
        |ip: &str| format!("{ip} ecn ect0 limit rate 20/second burst 2 packets counter {ip} ecn set ce");
    forward(router, &format!("{}\n{}", rule("ip"), rule("ip6")))
}

/// Removes all options of the SYNs of `plait` or of a kernel from the TCP segments that `which` names.
pub(crate) fn strip_all_options(router: &Namespace, which: &str) -> plait_netns::Result<Table> {
    // MSS, window scaling, SACK permitted, SACK, timestamps, Multipath TCP, TCP-ENO.
    let resets = [2, 3, 4, 5, 8, 30, 69].map(|kind| format!("reset tcp option {kind}"));
    forward(router, &format!("{which} counter {}", resets.join(" ")))
}

/// Drops all TCP, or all UDP (`protocol`).
pub(crate) fn drop_carrier(router: &Namespace, protocol: &str) -> plait_netns::Result<Table> {
    forward(router, &format!("meta l4proto {protocol} counter drop"))
}

/// A NAT for UDP over IPv4: towards the server every flow has the router's address.
pub(crate) struct Nat {
    router: Namespace,
    path: u8,
    /// The last part of the router's address towards the server.
    host: u8,
    _table: Table,
}

impl Nat {
    /// A NAT that drops the mapping of a flow after this time of silence.
    pub(crate) fn new(router: &Namespace, path: u8, forgets: Duration) -> Result<Self> {
        let rules =
            "chain n { type nat hook postrouting priority 100; oifname \"s\" meta l4proto udp masquerade; }";
        let table = Table::install(router, &rules.replace("; }", "\n}"))?;
        for name in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
            router.set_sysctl(&format!("net.netfilter.{name}"), forgets.as_secs())?;
        }
        router.set_sysctl("net.ipv4.conf.all.promote_secondaries", 1)?;
        let mut nat = Self { router: router.clone(), path, host: 1, _table: table };
        nat.rebind()?;
        Ok(nat)
    }

    /// Gives all flows another address from now on. The kernel drops the mappings of a removed address.
    pub(crate) fn rebind(&mut self) -> Result<()> {
        let (old, new) = (self.host, if self.host >= 100 { 10 } else { self.host.max(9) + 1 });
        let address = |host: u8| format!("10.2.{}.{host}/24 dev s", self.path);
        self.router.ip(&format!("address add {}", address(new)))?;
        self.router.ip(&format!("address del {}", address(old)))?;
        self.host = new;
        Ok(())
    }
}

fn forward(router: &Namespace, rule: &str) -> plait_netns::Result<Table> {
    Table::install(router, &format!("chain f {{ type filter hook forward priority 0;\n{rule}\n}}"))
}
