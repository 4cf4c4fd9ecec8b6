//! What goes past the server, and what never leaves.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use plait_netns::{Namespace, veth};

use super::house::House;
use super::support::{NAME, SERVER, TIMEOUT, until};

/// Whether a program that starts with these words gets the page.
fn fetch(house: &House, words: &[&str]) -> bool {
    let url = format!("http://{SERVER}:8080/page");
    let words = [words, &["curl", "-s", "-m", "5", "-o", "/dev/null", &url]].concat();
    house.run(words[0], &words[1..]).status.success()
}

#[test]
#[ignore = "needs root"]
fn exemptions_are_those_that_were_named() {
    let house = House::new("up_exempt");
    let (group, pid) = (format!("plait-test-{}", std::process::id()), "/sys/fs/cgroup/$0/cgroup.procs");
    let in_group = ["sh", "-c", &format!("echo $$ >{pid} && exec \"$@\""), &group];
    let as_user = |user| ["setpriv", "--reuid", user, "--clear-groups"];
    let options = ["--direct-user", "65534", "--udp", "direct", "--direct-cgroup", &group];
    let mut up = house.up(&[&["--carrier", "udp"], &options[..]].concat());
    let leaks = house.leaks();
    assert!(fetch(&house, &as_user("0")) && house.leaks() == leaks, "root goes through the server");
    assert!(fetch(&house, &as_user("65534")) && house.leaks() > leaks, "that user does not");
    // The group comes later, as that of a service does.
    house.run("mkdir", &[&format!("/sys/fs/cgroup/{group}")]);
    let leaks = house.leaks();
    until("nor does that group", || fetch(&house, &in_group) && house.leaks() > leaks);
    let leaks = house.leaks();
    let _ = house.datagram();
    assert!(house.leaks() > leaks, "UDP leaves");
    let leaks = house.leaks();
    assert!(house.gets_page(NAME, "20") && house.leaks() == leaks, "except for DNS");
    up.stop(TIMEOUT).expect("an end");
    house.run("rmdir", &[&format!("/sys/fs/cgroup/{group}")]);

    // Others that have this host as their router: a container, for example.
    let inner = Namespace::named("up_inner").expect("root");
    veth((&house.world.client, "inner0"), (&inner, "eth0")).expect("a wire");
    house.world.client.ip("address add 10.66.0.1/24 dev inner0").expect("added");
    house.world.client.set_sysctl("net.ipv4.ip_forward", 1).expect("set");
    for words in ["address add 10.66.0.2/24 dev eth0", "route add default via 10.66.0.1"] {
        inner.ip(words).expect(words);
    }
    house.world.server.ip("route add 10.66.0.0/24 via 10.77.1.1").expect("added");
    let pings = |from: &Namespace, to| from.run("ping", &format!("-c 1 -W 5 {to}")).is_ok();
    assert!(pings(&inner, SERVER), "without plait");
    let options = ["--direct", "198.51.100.1/32", "--never", "198.51.100.0/31", "--lan", "direct"];
    let mut up = house.up(&[&["--carrier", "tcp"], &options[..]].concat());
    let leaks = house.leaks();
    assert!(!fetch(&house, &as_user("0")) && !pings(&house.world.client, SERVER) && house.leaks() == leaks);
    assert!(pings(&house.world.client, "10.77.1.2"), "a private network");
    up.stop(TIMEOUT).expect("an end");
    let mut up = house.up(&["--carrier", "tcp", "--direct-device", "inner0"]);
    let leaks = house.leaks();
    assert!(!pings(&inner, SERVER) && house.leaks() == leaks, "what is forwarded is refused");
    assert!(pings(&house.world.client, "10.66.0.2") && !pings(&house.world.client, "10.77.1.2"));
    up.stop(TIMEOUT).expect("an end");
    let mut up = house.up(&["--carrier", "tcp", "--direct", SERVER]);
    assert!(pings(&inner, SERVER) && fetch(&house, &as_user("0")));
    up.stop(TIMEOUT).expect("an end");
}

#[test]
#[ignore = "needs root"]
fn visitors_stay_and_older_connections_of_the_host_are_reset() {
    let house = House::new("up_visitors");
    let (client, server) = (&house.world.client, &house.world.server);
    let listen = |host: &Namespace, at: &'static str| {
        host.enter(|| TcpListener::bind(at)).expect("entered").expect("a port")
    };
    let (door, far) = (listen(client, "0.0.0.0:2222"), listen(server, "198.51.100.1:7100"));
    let visit = || {
        let guest = server.enter(|| TcpStream::connect("10.77.1.1:2222")).expect("entered").expect("opened");
        (guest, door.accept().expect("a guest").0)
    };
    let early = visit();
    let mut older = house.connect(SERVER.parse().expect("an address"), 7100).expect("in clear");
    let mut far = far.accept().expect("it").0;
    let mut up = house.up(&["--carrier", "udp"]);
    let leaks = house.leaks();
    // The first segment that connection tracking sees comes from the peer. A while later the host answers.
    far.write_all(b"stray").expect("written");
    older.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    let _ = older.read(&mut [0; 5]);
    let _ = older.write(b"in clear");
    let ended = older.read(&mut [0; 5]).expect_err("nothing more");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
    assert_eq!(house.leaks(), leaks);
    for (mut guest, mut host) in [early, visit()] {
        for socket in [&guest, &host] {
            socket.set_read_timeout(Some(TIMEOUT)).expect("set");
        }
        guest.write_all(b"question").expect("written");
        host.read_exact(&mut [0; 8]).expect("read");
        host.write_all(b"answer").expect("written");
        guest.read_exact(&mut [0; 6]).expect("read");
    }
    up.stop(TIMEOUT).expect("an end");
}
