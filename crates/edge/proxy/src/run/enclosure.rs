//! The child: makes the private network and becomes the program.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{Gid, Uid, User, getegid, geteuid, initgroups, setgid, setuid};

use super::descriptor::owned;
use super::{exit, gate};

/// The child is ready and has sent its listeners.
pub(super) const READY: u8 = b'R';
/// The same, and its kernel has no IPv6.
pub(super) const READY_WITHOUT_IPV6: u8 = b'4';
/// The parent serves the listeners: the program may start.
pub(super) const GO: u8 = b'G';
/// The child failed; its reason follows as text.
pub(super) const FAILED: u8 = b'F';

/// Runs `program` in a private network, as `user` if that is not the user that runs plait. `control` is the number of the descriptor
/// that [`super::Enclosed::start`] has passed to this process; the listeners are handed over on it. Returns only on failure, with the
/// exit code to leave with; the reason was sent to the parent or printed.
pub fn enclose(control: RawFd, program: &[OsString], user: Option<&User>) -> i32 {
    let mut control = UnixStream::from(owned(control));
    let made = make_network().and_then(|(users, listeners)| {
        hand_over(&control, &listeners)?;
        users.return_to()
    });
    if let Err(error) = made {
        let _ = control.write_all(&[&[FAILED][..], format!("{error:#}").as_bytes()].concat());
        return exit::FAILED;
    }
    let mut go = [0];
    if control.read_exact(&mut go).is_err() || go[0] != GO {
        return exit::FAILED;
    }
    drop(control);
    if let Some(user) = user.filter(|user| user.uid != geteuid())
        && let Err(error) = become_user(user)
    {
        let _ = writeln!(io::stderr(), "plait: cannot become the user {}: {error:#}", user.name);
        return exit::FAILED;
    }
    become_program(program, user)
}

/// Drops all privileges that `user` does not have.
fn become_user(user: &User) -> anyhow::Result<()> {
    let name = CString::new(user.name.as_str())?;
    initgroups(&name, user.gid).context("setting the groups")?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    // Forgotten with the old user.
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    Ok(())
}

fn become_program(program: &[OsString], user: Option<&User>) -> i32 {
    let Some((name, arguments)) = program.split_first() else { return exit::FAILED };
    let mut command = Command::new(name);
    command.args(arguments);
    if let Some(user) = user {
        command.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    let error = command.exec();
    // A failed execution restores the default of SIGPIPE: the exit code must still report if the message has no reader.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGPIPE);
    let _ = signals.thread_block();
    let (code, what) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "not found".to_owned()),
        _ => (exit::NOT_EXECUTABLE, error.to_string()),
    };
    let _ = writeln!(io::stderr(), "plait: {}: {what}", name.display());
    code
}

/// The sockets in the private network, in the order in which they are handed over.
struct Sockets {
    tcp4: TcpListener,
    dns: UdpSocket,
    dns_tcp: TcpListener,
    /// TCP and DNS. `None` if the kernel has no IPv6, or gives this process none (`ipv6.disable=1`, seccomp).
    v6: Option<(TcpListener, UdpSocket)>,
    /// `None` on kernels without NFLOG: there connections are accepted before it is known whether the destination can be reached.
    gate: Option<gate::Sockets>,
}

/// The user of the program, once its network is made.
enum Users {
    /// The user that runs plait.
    Ours,
    /// These ids; until then the child is root, in a user namespace.
    Of(Uid, Gid),
}

impl Users {
    /// Acquires the privileges to set up a network: those of this process, or those of root in a user namespace of our own, for this
    /// process and the programs that it starts.
    fn become_privileged() -> anyhow::Result<Self> {
        let (uid, gid) = (geteuid(), getegid());
        match unshare(NETWORK) {
            Ok(()) => return Ok(Self::Ours),
            Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno).context(FORBIDDEN),
        }
        unshare(CloneFlags::CLONE_NEWUSER).context(FORBIDDEN)?;
        let mapped = map_users((0, uid), (0, gid)).context(FORBIDDEN);
        // AppArmor lets some programs have a user namespace without any rights.
        mapped.and_then(|()| unshare(NETWORK).context(FORBIDDEN)).map(|()| Self::Of(uid, gid))
    }

    /// The program sees its user, as outside, and has no privilege in its network, as outside.
    fn return_to(self) -> anyhow::Result<()> {
        let Self::Of(uid, gid) = self else { return Ok(()) };
        unshare(CloneFlags::CLONE_NEWUSER).context("cannot give up the privileges of the private network")?;
        map_users((uid.as_raw(), Uid::from_raw(0)), (gid.as_raw(), Gid::from_raw(0)))
            .context("cannot give up the privileges of the private network")?;
        end_with_parent()
    }
}

const NETWORK: CloneFlags = CloneFlags::CLONE_NEWNET.union(CloneFlags::CLONE_NEWNS);

/// Neither privileges nor a user namespace with some.
const FORBIDDEN: &str = "cannot make a private network: it takes root, or user namespaces for ordinary users, which are forbidden \
     here\n  fix: allow them (sysctl user.max_user_namespaces=10000, sysctl kernel.unprivileged_userns_clone=1, sysctl \
     kernel.apparmor_restrict_unprivileged_userns=0), run as root, or use plait proxy or plait forward, which need neither";

/// In the new user namespace: an id inside for an id of the surrounding namespace.
fn map_users((uid, outer_uid): (u32, Uid), (gid, outer_gid): (u32, Gid)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {outer_uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {outer_gid} 1"))
}

/// A parent that is killed must not leave a program behind that waits for its network.
fn end_with_parent() -> anyhow::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGTERM)?)
}

fn make_network() -> anyhow::Result<(Users, Sockets)> {
    end_with_parent()?;
    let users = Users::become_privileged()?;
    tool("ip", &["-batch", "-"], loopback(has_v6()))?;
    let v6 = listeners_v6().context("opening listeners for IPv6")?;
    let mut sockets = Sockets {
        gate: gate::Sockets::open(gate::GROUP, v6.is_some()).ok(),
        tcp4: TcpListener::bind("127.0.0.1:0").context("opening a listener")?,
        dns: UdpSocket::bind("127.0.0.1:53").context("opening a listener for DNS")?,
        dns_tcp: TcpListener::bind("127.0.0.1:53").context("opening a listener for DNS over TCP")?,
        v6,
    };
    let port6 = sockets.v6.as_ref().map(|(tcp6, _)| tcp6.local_addr()).transpose()?;
    let redirection = rules(sockets.tcp4.local_addr()?.port(), port6.map(|at| at.port()));
    let put = |rules: &str| tool("nft", &["-f", "-"], rules);
    // One transaction: a kernel without the parts of the gate takes nothing of it.
    let is_gated = sockets.gate.is_some() && put(&(redirection.clone() + &gate_rules())).is_ok();
    if !is_gated {
        sockets.gate = None;
        put(&redirection)?;
    }
    use_own_resolver()?;
    Ok((users, sockets))
}

/// The commands of `ip` that let the kernel take every address for one of its own.
fn loopback(has_v6: bool) -> &'static str {
    if has_v6 {
        "link set lo up\nroute add local default dev lo\nroute add local ::/0 dev lo\n"
    } else {
        "link set lo up\nroute add local default dev lo\n"
    }
}

/// Whether `lo` gets an address of IPv6 in this namespace, and this process may use the family.
fn has_v6() -> bool {
    let is_off = fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6");
    is_off.is_ok_and(|is_off| is_off.trim() == "0") && UdpSocket::bind("[::]:0").is_ok()
}

/// The listeners for TCP and DNS over IPv6, or `None` on a host without IPv6: there no program can use it either.
fn listeners_v6() -> io::Result<Option<(TcpListener, UdpSocket)>> {
    let listeners = TcpListener::bind("[::1]:0").and_then(|tcp| Ok((tcp, UdpSocket::bind("[::1]:53")?)));
    match listeners {
        Ok(listeners) => Ok(Some(listeners)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            // The family is missing, or `lo` has no address of it.
            Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// TCP connections that leave go to the listeners, and DNS to ours, whatever nameserver the program asks: its `resolv.conf` becomes that of
/// the machine again if the machine replaces the file. An answer goes to the address that the program asked from, which is that of the nameserver:
/// the kernel takes every address for one of its own. Everything else that leaves is refused at once, so that programs
/// that try UDP first (QUIC) fall back without waiting. An echo request is not answered by this namespace, because the answer would
/// look like one from the destination. A program's own loopback traffic is not touched.
fn rules(port4: u16, port6: Option<u16>) -> String {
    let [dns6, tcp6] = port6.map_or_else(Default::default, |port6| {
        [
            "udp dport 53 meta nfproto ipv6 redirect to :53".to_owned(),
            format!("meta l4proto tcp meta nfproto ipv6 redirect to :{port6}"),
        ]
    });
    format!(
        "table inet plait {{
            chain captured {{
                type nat hook output priority -100; policy accept;
                udp dport 53 meta nfproto ipv4 redirect to :53
                {dns6}
                ip daddr 127.0.0.0/8 accept
                ip6 daddr ::1 accept
                meta l4proto tcp meta nfproto ipv4 redirect to :{port4}
                {tcp6}
            }}
            chain refused {{
                type filter hook output priority 0; policy accept;
                udp sport 53 ct direction reply accept
                ip daddr 127.0.0.0/8 accept
                ip6 daddr ::1 accept
                meta l4proto icmp icmp type != echo-request accept
                meta l4proto ipv6-icmp icmpv6 type != echo-request accept
                meta l4proto icmp reject with icmp type admin-prohibited
                meta l4proto ipv6-icmp reject with icmpv6 type admin-prohibited
                meta l4proto != tcp reject
            }}
        }}\n"
    )
}

/// The program's first packets wait for an answer: see [`gate`].
fn gate_rules() -> String {
    let (mark, log) = (gate::MARK, format!("log group {} queue-threshold 1", gate::GROUP));
    format!(
        "table inet plait {{
            chain waiting {{
                type filter hook output priority -150; policy accept;
                meta mark {mark} accept
                udp sport 53 ct direction reply accept
                ip daddr 127.0.0.0/8 accept
                ip6 daddr ::1 accept
                meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn {log} drop
                meta l4proto udp udp dport != 53 limit rate 1/second {log}
            }}
        }}\n"
    )
}

/// Programs find their resolver in a file that only this namespace of mounts sees. The directories of name service daemons are hidden first,
/// because systemd-resolved has the file in its own.
fn use_own_resolver() -> anyhow::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("making mounts private")?;
    let target = fs::canonicalize("/etc/resolv.conf").ok();
    let text = own_resolv_conf(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    RESOLVERS.into_iter().try_for_each(hide)?;
    mount(Some("tmpfs"), "/mnt", Some("tmpfs"), MsFlags::empty(), Some("size=64k,mode=755"))
        .context("mounting a tmpfs")?;
    let file = "/mnt/resolv.conf";
    fs::write(file, text)?;
    // Whatever the umask is: the program may have another user.
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    if let Some(target) = target {
        // It was there before: it is in a directory that is hidden now.
        if matches!(fs::exists(&target), Ok(false)) {
            fs::write(&target, "").with_context(|| format!("making {}", target.display()))?;
        }
        mount(Some(file), &target, none, MsFlags::MS_BIND, none)
            .with_context(|| format!("mounting over {}", target.display()))?;
    }
    nix::mount::umount2("/mnt", nix::mount::MntFlags::MNT_DETACH).context("hiding the tmpfs")
}

/// Directories of name service daemons. A daemon would ask outside of the namespace, through its unix socket.
const RESOLVERS: [&str; 3] = ["/run/nscd", "/var/run/nscd", "/run/systemd/resolve"];

/// Covers a directory of a name service daemon, if there is one.
fn hide(daemon: &str) -> anyhow::Result<()> {
    match fs::exists(daemon) {
        Ok(false) => return Ok(()),
        // The program cannot open it either.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Ok(true) | Err(_) => {}
    }
    mount(Some("tmpfs"), daemon, Some("tmpfs"), MsFlags::empty(), Some("size=4k,mode=755")).with_context(
        || {
            format!(
                "cannot hide {daemon} from the program, which would ask for names there, outside of plait"
            )
        },
    )
}

/// The `resolv.conf` of the program: our nameserver, and the search list and options of this machine. Three options are ours. The server may
/// have to try several nameservers, so the time limit is the usual one. And the AD bit is not trusted, because the nameserver is not the one
/// for which the machine trusts it.
fn own_resolv_conf(machines: &str) -> String {
    const OURS: [&str; 3] = ["timeout:", "attempts:", "trust-ad"];
    let mut text = "nameserver 127.0.0.1\n".to_owned();
    for line in machines.lines() {
        let mut words = line.split_whitespace();
        let kept: Vec<&str> = match words.next() {
            Some("search" | "domain" | "sortlist") => line.split_whitespace().collect(),
            Some("options") => {
                let others = words.filter(|word| !OURS.iter().any(|ours| word.starts_with(ours)));
                ["options"].into_iter().chain(others).collect()
            }
            _ => continue,
        };
        // The tmpfs is small.
        if kept.len() > 1 && text.len() + line.len() < MAX_RESOLV_CONF {
            text += &(kept.join(" ") + "\n");
        }
    }
    text + "options timeout:5 attempts:2\n"
}

/// Longest `resolv.conf` of a program; further lines are left out.
const MAX_RESOLV_CONF: usize = 32 * 1024;

fn tool(program: &str, arguments: &[&str], input: &str) -> anyhow::Result<()> {
    let package = if program == "ip" { "iproute2" } else { "nftables" };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow!("cannot start {program}: it is not installed\n  fix: install the package {package}")
            }
            _ => anyhow!("cannot start {program}: {error}"),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let step = failed_step(&said, input).map_or_else(|| arguments.join(" "), str::to_owned);
        bail!("{program} {step}: {}", said.trim());
    }
    Ok(())
}

/// The command of a batch of `ip` that failed: `Command failed -:2` names its line.
fn failed_step<'a>(said: &str, batch: &'a str) -> Option<&'a str> {
    let (_, number) = said.trim_end().rsplit_once("Command failed -:")?;
    batch.lines().nth(number.parse::<usize>().ok()?.checked_sub(1)?)
}

fn hand_over(control: &UnixStream, sockets: &Sockets) -> anyhow::Result<()> {
    let Sockets { tcp4, dns, dns_tcp, v6, gate } = sockets;
    let mut fds = vec![tcp4.as_raw_fd(), dns.as_raw_fd(), dns_tcp.as_raw_fd()];
    fds.extend(v6.iter().flat_map(|(tcp6, dns6)| [tcp6.as_raw_fd(), dns6.as_raw_fd()]));
    fds.extend(gate.iter().flat_map(gate::Sockets::numbers));
    let ready = [if v6.is_some() { READY } else { READY_WITHOUT_IPV6 }];
    let message = [IoSlice::new(&ready)];
    let rights = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(control.as_raw_fd(), &message, &rights, MsgFlags::empty(), None)
        .context("handing the listeners over")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_command_of_the_batch_that_failed() {
        let said = "RTNETLINK answers: File exists\nCommand failed -:2\n";
        assert_eq!(failed_step(said, loopback(true)), Some("route add local default dev lo"));
        assert_eq!(failed_step("Command failed -:9", loopback(true)), None);
        assert_eq!(failed_step("Error: syntax error", loopback(true)), None);
    }

    #[test]
    fn the_program_has_the_search_list_and_the_options_of_its_machine() {
        let machines = "# by hand\nnameserver 192.0.2.53\nsearch corp.example  lab.example\n\
                        options ndots:2 timeout:1 trust-ad edns0 attempts:9\noptions trust-ad\nsearch\n";
        assert_eq!(
            own_resolv_conf(machines),
            "nameserver 127.0.0.1\nsearch corp.example lab.example\noptions ndots:2 edns0\noptions timeout:5 attempts:2\n"
        );
        assert_eq!(own_resolv_conf(""), "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n");
        let long = format!("search {}\ndomain corp.example\n", "x".repeat(100_000));
        assert!(own_resolv_conf(&long).starts_with("nameserver 127.0.0.1\ndomain corp.example\n"));
    }
}
