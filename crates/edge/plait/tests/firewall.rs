//! Changes to the rules of nftables while a host runs. Needs root, as `network` does.

#![allow(clippy::disallowed_methods, reason = "the kernel has a clock and threads")]

mod net;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::{Net, block_on, round_trip, wait_for};
use plait::{Protection, Service, Stream};
use plait_base::LOG_INTERVAL;
use plait_netns::Namespace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
#[ignore = "needs root"]
fn a_firewall_that_is_reloaded_takes_our_rules_away_for_a_moment_only() {
    let _turn = turn();
    let net = Net::new();
    let (log, began) = (Log::start(), Instant::now());
    let host = net.host(&["a1", "a2"]);
    let listener = block_on(host.listen(7005, Service::plain())).expect("a free port");
    let old = net.echo_server("10.91.1.2");
    let mut old = block_on(host.connect(old, Protection::plain())).expect("the kernel answers");
    for _ in 0..3 {
        net.a.run("nft", "flush ruleset").expect("as a reload does it first");
        let is_back = || net.a.run("nft", "list table inet plait-0").ok();
        assert!(wait_for(is_back).is_some(), "the table is gone for good: {:#?}", log.lines_with(""));
    }
    let next = net.echo_server("10.91.2.2");
    block_on(async {
        assert_eq!(ask(&mut old).await, *b"ping", "an old connection goes on");
        let mut next = host.connect(next, Protection::plain()).await.expect("the kernel answers");
        assert_eq!(ask(&mut next).await, *b"ping");
    });
    let server: SocketAddr = "10.91.1.1:7005".parse().expect("an address");
    let b = net.b.clone();
    let client = std::thread::spawn(move || b.enter(|| round_trip(server)).expect("entered"));
    block_on(async {
        let mut stream = listener.accept().await.expect("the kernel connects");
        let mut question = [0; 4];
        stream.read_exact(&mut question).await.expect("four bytes");
        stream.write_all(&question).await.expect("taken");
        stream.shutdown().await.expect("open until now");
    });
    assert_eq!(client.join().expect("no panic"), Some(*b"ping"), "the port is still ours");
    // The table can be seen before the line that tells of it is written.
    let lines = wait_for(|| Some(log.lines_with("put back")).filter(|lines| !lines.is_empty()));
    let lines = lines.unwrap_or_default();
    // One in each interval: on a busy machine the three may come in more than one.
    let most = 1 + began.elapsed().div_duration_f64(LOG_INTERVAL) as usize;
    assert!((1..=most).contains(&lines.len()), "said, and not each time: {lines:#?}");
}

#[test]
#[ignore = "needs root"]
fn rules_that_another_program_emptied_are_restored() {
    let _turn = turn();
    let net = Net::new();
    let host = net.host(&["a1"]);
    net.a.run("nft", "flush table inet plait-0").expect("the chains stay, the rules go");
    let has_rules = || {
        let listing = net.a.run("nft", "list table inet plait-0").expect("it exists");
        listing.contains("masquerade").then_some(())
    };
    assert!(wait_for(has_rules).is_some());
    drop(host);
}

#[test]
#[ignore = "needs root"]
fn a_port_can_be_listened_on_while_the_firewall_is_reloaded() {
    let _turn = turn();
    let net = Net::new();
    let host = net.host(&["a1"]);
    for port in 7010..7015 {
        net.a.run("nft", "flush ruleset").expect("as a reload does it first");
        let listener = block_on(host.listen(port, Service::plain()))
            .expect("whether the rules are there already or not");
        let is_sent_to_us = || {
            let set = net.a.run("nft", "list set inet plait-0 listening").ok()?;
            set.contains(&port.to_string()).then_some(())
        };
        assert!(wait_for(is_sent_to_us).is_some(), "{port}");
        drop(listener);
    }
}

#[test]
#[ignore = "needs root"]
fn two_hosts_put_back_their_own_rules_and_leave_it_at_that() {
    let _turn = turn();
    let net = Net::new();
    let hosts = [net.host(&["a1"]), net.host(&["a1", "a2"])];
    let changes = Changes::of_rules(&net.a);
    // The monitor is heard once it hears.
    assert!(wait_for(|| changes.up_to_now(&net.a, Duration::from_millis(500))).is_some());
    net.a.run("nft", "flush ruleset").expect("as a reload does it first");
    for table in ["plait-0", "plait-1"] {
        let is_back = || net.a.run("nft", &format!("list table inet {table}")).ok();
        assert!(wait_for(is_back).is_some(), "{table}");
    }
    // Longer than any check of the rules is delayed: a host that answers changes with changes would still be at
    // it.
    std::thread::sleep(Duration::from_secs(2));
    let made = changes.up_to_now(&net.a, Duration::from_secs(10)).expect("it still hears");
    assert_eq!(made, 3 + 1, "the flush, one by each host, and what asked for the number");
    drop(hosts);
}

/// One test at a time: what the hosts of this process log is one text.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the transactions of nftables in a namespace.
struct Changes {
    lines: Receiver<String>,
    monitor: Child,
    asked: Cell<usize>,
}

impl Changes {
    fn of_rules(namespace: &Namespace) -> Self {
        let mut monitor = Command::new("nft");
        monitor.arg("monitor").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut monitor = namespace.spawn(&mut monitor).expect("it is installed");
        let output = BufReader::new(monitor.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { lines, monitor, asked: Cell::new(0) }
    }

    /// Transactions since the last answer, up to one that this makes itself; nothing if that one is not heard of
    /// within `limit`.
    fn up_to_now(&self, namespace: &Namespace, limit: Duration) -> Option<usize> {
        self.asked.set(self.asked.get() + 1);
        let table = format!("inet asked{}", self.asked.get());
        namespace.run("nft", &format!("add table {table}")).expect("added");
        let (mut count, mut is_found, mut is_late) = (0, false, false);
        while let Ok(line) = self.lines.recv_timeout(limit) {
            is_found |= line.contains(&table);
            // The monitor of a busy machine shows an earlier question behind its time.
            is_late |= line.contains("add table inet asked") && !line.contains(&table);
            if line.contains("new generation") {
                count += usize::from(!std::mem::take(&mut is_late));
                if is_found {
                    return Some(count);
                }
            }
        }
        None
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// What comes back for four bytes.
async fn ask(stream: &mut Stream) -> [u8; 4] {
    stream.write_all(b"ping").await.expect("taken");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.expect("an answer");
    answer
}

/// What the hosts of this process log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        log
    }

    fn lines_with(&self, words: &str) -> Vec<String> {
        let log = self.0.lock().expect("no thread panicked");
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().expect("no thread panicked"), data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
