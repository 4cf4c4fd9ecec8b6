//! What a path does to packets: rules for the router in its middle.

use plait_netns::Namespace;
use plait_netns::nft::Table;

/// Where MPTCP options are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strip {
    /// From every SYN without ACK.
    Syn,
    /// From every SYN with ACK.
    SynAck,
    /// From everything but SYNs: the handshake looks good, then the options are gone.
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
    // 100 bytes behind the start of the TCP header: in the payload whatever the options (60 bytes at most). All bits of the byte
    // are turned over: to set it to some value would change nothing in one of 256 segments.
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

/// Marks some of what is ECN-capable with "congestion experienced" (RFC 3168), both ways.
pub(crate) fn mark_some(router: &Namespace) -> plait_netns::Result<Table> {
    let rule =
        |ip: &str| format!("{ip} ecn ect0 limit rate 20/second burst 2 packets counter {ip} ecn set ce");
    forward(router, &format!("{}\n{}", rule("ip"), rule("ip6")))
}

fn forward(router: &Namespace, rule: &str) -> plait_netns::Result<Table> {
    Table::install(router, &format!("chain f {{ type filter hook forward priority 0;\n{rule}\n}}"))
}
