//! Observations of the peer's kernel during a transfer: the events of `ip mptcp monitor`, and `ss -M` in the middle of it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use plait_netns::Namespace;

use plait_lab::{End, Program, wait_until};

/// How often the sockets are looked at while a transfer runs.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long the kernel may take to say that a connection is over: only for what is printed.
const LAST_EVENT: Duration = Duration::from_millis(300);

/// Follows one kernel.
pub(crate) struct Watch {
    namespace: Namespace,
    monitor: Program,
    sockets: Sockets,
    due: Instant,
}

/// The observations of one transfer.
#[derive(Default)]
pub(crate) struct Seen {
    /// Names of events as `ip mptcp monitor` prints them, in order.
    events: Vec<String>,
    sockets: Sockets,
}

/// One connection as `ss` shows it: the socket of the program, and the subflows below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// Token, numbers of subflows and addresses, flags.
    connection: String,
    /// Of each subflow: its flags and the address ids, `Mec 0/0`.
    subflows: Vec<String>,
}

impl Watch {
    /// Follows the kernel of `namespace` from now on.
    pub(crate) fn start(namespace: &Namespace, directory: &Path) -> Result<Self> {
        let mut command = Command::new("ip");
        command.args(["mptcp", "monitor"]);
        let monitor = Program::start(namespace, directory, "monitor", command, End::Own, End::Own)?;
        let sockets = format!("/proc/{}/net/netlink", monitor.pid());
        wait_until("a listening `ip mptcp monitor`", Duration::from_secs(60), || {
            anyhow::Ok(std::fs::read_to_string(&sockets)?.lines().any(follows_generic_netlink))
        })?;
        Ok(Self {
            namespace: namespace.clone(),
            monitor,
            sockets: Sockets::default(),
            due: Instant::now() + INTERVAL / 8,
        })
    }

    /// Looks at the sockets if it is time for it.
    pub(crate) fn look_if_due(&mut self) -> Result<()> {
        if Instant::now() >= self.due {
            self.look()?;
        }
        Ok(())
    }

    /// The sockets now; the latest of those with the most subflows are kept for the end.
    pub(crate) fn look(&mut self) -> Result<Sockets> {
        let now = Sockets::parse(&self.namespace.mptcp_sockets()?);
        if now.subflows.len() >= self.sockets.subflows.len() && !now.subflows.is_empty() {
            self.sockets = now.clone();
        }
        self.due = Instant::now() + INTERVAL;
        Ok(now)
    }

    /// The end of the transfer.
    pub(crate) fn finish(self) -> Result<Seen> {
        let events = || Ok::<_, anyhow::Error>(events(&std::fs::read_to_string(self.monitor.output())?));
        let until = Instant::now() + LAST_EVENT;
        while events()?.last().is_some_and(|last| last != "CLOSED") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Seen { events: events()?, sockets: self.sockets })
    }
}

impl Seen {
    /// How often an event came.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.events.iter().filter(|seen| *seen == event).count()
    }

    /// Two lines.
    pub(crate) fn evidence(&self) -> String {
        let mut text = "\nmonitor:".to_owned();
        for run in self.events.chunk_by(|one, next| one == next) {
            let _ = match run {
                [one] => write!(text, " {one}"),
                _ => write!(text, " {}x{}", run[0], run.len()),
            };
        }
        if self.events.is_empty() {
            text += " no event";
        }
        text + "\nss: " + &self.sockets.evidence()
    }
}

impl Sockets {
    /// Reads what `ss -H -n -i -t -M` prints: a line per socket, its details on the next, which is indented.
    fn parse(text: &str) -> Self {
        let mut sockets = Self::default();
        let mut is_connection = false;
        for line in text.lines() {
            if !line.starts_with(char::is_whitespace) {
                is_connection = line.starts_with("mptcp");
            } else if is_connection {
                let is_state = |word: &&str| {
                    !["write_seq:", "snd_una:", "rcv_nxt:"].iter().any(|number| word.starts_with(number))
                        && !word.contains("_max:")
                };
                sockets.connection = line.split_whitespace().filter(is_state).collect::<Vec<_>>().join(" ");
            } else if let Some(subflow) = subflow(line) {
                sockets.subflows.push(subflow);
            }
        }
        sockets
    }

    /// Whether a subflow has this flag: `b` for a backup by the kernel's word, `B` by that of its peer.
    pub(crate) fn has_subflow_with(&self, flag: char) -> bool {
        self.subflows
            .iter()
            .any(|subflow| subflow.split(' ').next().is_some_and(|flags| flags.contains(flag)))
    }

    pub(crate) fn evidence(&self) -> String {
        if self.subflows.is_empty() {
            return "no subflow of Multipath TCP was seen".to_owned();
        }
        format!("{} [{}]", self.connection, self.subflows.join(", "))
    }
}

/// `flags:Jec token:0000(id:2)/2d7cd523(id:0)` as `Jec 2/0`.
fn subflow(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("tcp-ulp-mptcp flags:")?;
    let (flags, rest) = rest.split_once(" token:")?;
    let ids: Vec<&str> = rest.split("(id:").skip(1).filter_map(|part| part.split(')').next()).collect();
    Some(format!("{flags} {}", ids.join("/")))
}

/// The names in `[  ESTABLISHED] token=...`. Those of listeners, which this `ip` may know by number only, say nothing about
/// a connection.
fn events(text: &str) -> Vec<String> {
    let name = |line: &str| Some(line.trim().strip_prefix('[')?.split_once(']')?.0.trim().to_owned());
    let is_told = |name: &String| !name.starts_with("UNKNOWN") && !name.starts_with("LISTENER");
    text.lines().filter_map(name).filter(is_told).collect()
}

/// A line of `/proc/PID/net/netlink`: protocol 16 is generic netlink, and the fourth column says which groups are heard.
fn follows_generic_netlink(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let (protocol, groups) = (words.next(), words.nth(1));
    protocol == Some("16") && groups.is_some_and(|groups| groups.contains(|digit| digit != '0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SS: &str = "\
tcp   ESTAB 0 0 10.9.1.2:5000 10.9.2.1:39467
\t cubic rto:204 tcp-ulp-mptcp flags:Jec token:0000(id:2)/2d7cd523(id:0) seq:47 sfseq:9a maplen:6a00
tcp   ESTAB 0 0 10.9.1.2:5000 10.9.1.1:39694
\t cubic rto:204 tcp-ulp-mptcp flags:MBec token:0000(id:0)/2d7cd523(id:0) seq:47 sfseq:ed maplen:4b40
tcp   ESTAB 0 0 10.9.1.2:22 10.9.1.1:39695
\t cubic rto:204
mptcp ESTAB 0 0 10.9.1.2:5000 10.9.1.1:39694
\t subflows:1 subflows_max:2 remote_key token:2d7cd523 write_seq:15 snd_una:15 rcv_nxt:47
";

    #[test]
    fn the_sockets_of_a_connection_are_told_in_one_line() {
        let sockets = Sockets::parse(SS);
        assert_eq!(sockets.evidence(), "subflows:1 remote_key token:2d7cd523 [Jec 2/0, MBec 0/0]");
        assert!(sockets.has_subflow_with('B') && !sockets.has_subflow_with('b'));
        assert_eq!(Sockets::parse("").evidence(), "no subflow of Multipath TCP was seen");
    }

    #[test]
    fn events_are_told_by_name_and_those_of_listeners_left_out() {
        let text = "[UNKNOWN 15]\n[       CREATED] token=1 remid=0\n[SF_ESTABLISHED] token=1\n[SF_ESTABLISHED] token=1\n";
        let seen = Seen { events: events(text), sockets: Sockets::default() };
        assert_eq!((seen.count("SF_ESTABLISHED"), seen.count("CLOSED")), (2, 0));
        assert!(seen.evidence().starts_with("\nmonitor: CREATED SF_ESTABLISHEDx2\n"));
    }

    #[test]
    fn a_monitor_listens_when_its_socket_has_a_group() {
        assert!(follows_generic_netlink("00000000ff3d9559 16  5637       00000100 0        0"));
        assert!(!follows_generic_netlink("00000000ff3d9559 16  5637       00000000 0        0"));
        assert!(!follows_generic_netlink("00000000f423e071 0   5637       00000100 0        0"));
        assert!(!follows_generic_netlink("sk               Eth Pid        Groups   Rmem     Wmem"));
    }
}
