//! A client with two networks behind one router, and a server behind that router. All hosts check sources strictly (`rp_filter`).
//!
//! ```text
//!          10.81.1.2 wan1 ── c1 10.81.1.1 ┐
//!  client                                 router s 10.82.1.1 ── wan1 10.82.1.2  server
//!          10.81.2.2 wan2 ── c2 10.81.2.1 ┘
//! ```
//!
//! The client routes by source, as a host with several networks does: by tables 101 and 102 for the networks, by the main table for the rest.

use std::process::Command;

use plait_lab::Program;
use plait_netns::nft::Table;
use plait_netns::{Link, Namespace, veth};

use super::{PLAIT, SERVER, TIMEOUT, World};

pub(crate) struct Routed {
    pub(crate) world: World,
    pub(crate) router: Namespace,
}

impl Routed {
    /// With a server that allows every client to connect to all ports of [`SERVER`] over this carrier.
    pub(crate) fn new(label: &str, carrier: &str) -> Self {
        let routed = Self::without_server(label);
        let mut serve = routed.serve(carrier);
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
        let Self { mut world, router } = routed;
        (world.url, world.serve) = (url, Some(serve));
        Self { world, router }
    }

    pub(crate) fn without_server(label: &str) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let [client, server, router] = [label, label, label].map(host);
        router.set_sysctl("net.ipv4.ip_forward", 1).expect("set");
        let mut routed = Self { world: World::unconnected(label, client, server), router };
        for path in [1, 2] {
            routed.plug_in(path);
            let link = Link::existing(&routed.world.client, &format!("wan{path}")).expect("a path");
            routed.world.paths.push(link);
            let rule = format!("rule add from 10.81.{path}.0/24 table 10{path}");
            routed.world.client.ip(&rule).expect("added");
        }
        veth((&routed.router, "s"), (&routed.world.server, "wan1")).expect("a wire");
        routed.router.ip("address add 10.82.1.1/24 dev s").expect("added");
        let server = &routed.world.server;
        for words in ["address add 10.82.1.2/24 dev wan1", "route add default via 10.82.1.1 dev wan1"] {
            server.ip(words).expect("added");
        }
        routed
    }

    /// Starts `plait serve` without waiting for its line.
    pub(crate) fn serve(&self, carrier: &str) -> Program {
        let rule = format!("{SERVER}:*");
        let mut command = Command::new(PLAIT);
        command.args(["serve", "--proxy", "--anyone", "--allow", &rule, "--path", "wan1"]);
        command.args(["--carrier", carrier, "--keys", "server"]).current_dir(&self.world.directory);
        self.world.start(&self.world.server, "serve", command)
    }

    /// The wire of a path of the client, with its address and routes.
    pub(crate) fn plug_in(&self, path: u8) {
        let (near, far) = (format!("wan{path}"), format!("c{path}"));
        veth((&self.world.client, &near), (&self.router, &far)).expect("a wire");
        self.router.ip(&format!("address add 10.81.{path}.1/24 dev {far}")).expect("added");
        self.world.client.ip(&format!("link set {near} address 02:00:00:00:00:0{path}")).expect("set");
        self.configure(path, &near, 2);
    }

    /// What a DHCP client does with a new lease: the address `host` and the routes of a path.
    pub(crate) fn configure(&self, path: u8, device: &str, host: u8) {
        let client = &self.world.client;
        client.ip(&format!("address replace 10.81.{path}.{host}/24 dev {device}")).expect("added");
        self.route(path, device);
    }

    /// The default routes of a path: in the main table, and in the table of its network.
    pub(crate) fn route(&self, path: u8, device: &str) {
        let default = format!("route replace default via 10.81.{path}.1 dev {device}");
        self.world.client.ip(&format!("{default} metric 10{path}")).expect("a route");
        self.world.client.ip(&format!("{default} table 10{path}")).expect("a route");
    }

    /// `plait run` with this program over these paths and this carrier.
    pub(crate) fn run(&self, carrier: &str, paths: &[&str], program: &[&str]) -> Program {
        run_at(&self.world, &self.world.client, "client", carrier, paths, program)
    }
}

/// `plait run` at a host, with keys of this name.
pub(crate) fn run_at(
    world: &World,
    host: &Namespace,
    keys: &str,
    carrier: &str,
    paths: &[&str],
    program: &[&str],
) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--carrier", carrier, "--keys", keys]);
    for path in paths {
        command.args(["--path", path]);
    }
    command.arg("--").args(program).current_dir(&world.directory);
    world.start(host, &format!("run-{keys}"), command)
}

/// The client is behind two modems: each has the address 192.168.8.1, translates, and has given the client the address 192.168.8.100.
pub(crate) fn two_modems(label: &str) -> (Routed, [Namespace; 2], [Table; 2]) {
    let routed = Routed::without_server(label);
    let modems = [label, label].map(host);
    let tables = [1, 2].map(|path| {
        let (modem, client, router) = (&modems[path - 1], &routed.world.client, &routed.router);
        let (near, far) = (format!("wan{path}"), format!("c{path}"));
        client.ip(&format!("link delete {near}")).expect("deleted");
        modem.set_sysctl("net.ipv4.ip_forward", 1).expect("set");
        veth((client, &near), (modem, "lan")).expect("a wire");
        veth((modem, "net"), (router, &far)).expect("a wire");
        for (host, words) in [
            (router, format!("address add 10.81.{path}.1/24 dev {far}")),
            (modem, format!("address add 10.81.{path}.2/24 dev net")),
            (modem, format!("route add default via 10.81.{path}.1 dev net")),
            (modem, "address add 192.168.8.1/24 dev lan".to_owned()),
            (client, format!("address add 192.168.8.100/24 dev {near}")),
            (client, format!("route add default via 192.168.8.1 dev {near} metric 10{path}")),
        ] {
            host.ip(&words).expect(&words);
        }
        let chain = "chain post { type nat hook postrouting priority 100; oifname \"net\" masquerade; }";
        Table::install(modem, chain).expect("rules")
    });
    (routed, modems, tables)
}

/// A host that checks sources strictly.
pub(crate) fn host(label: &str) -> Namespace {
    let host = Namespace::named(label).expect("root can make namespaces");
    for name in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"] {
        host.set_sysctl(name, 1).expect("set");
    }
    host.set_sysctl("net.ipv6.conf.default.accept_dad", 0).expect("set");
    host
}
