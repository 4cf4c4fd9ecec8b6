//! The first contact with an unknown server, and an attacker in the middle of one path with a `plait` of its own. The attacker is
//! detected before a byte of the application was sent, and the error names the paths.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plait_lab::wired::Pair;
use plait_lab::{End, Program};
use plait_netns::{Cidr, Namespace, veth};

use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::fixture::{PORT, START};

/// The devices of the paths, and where each leads: the server has the first address on all of its paths.
const PATHS: [(&str, [u8; 4]); 2] = [("wan1", [10, 77, 1, 2]), ("wan2", [10, 77, 2, 2])];
const SECRET: &[u8] = b"not for strangers\n";
/// Both of a connection and of the looks at each path that follow where it fails.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) fn all() -> Vec<Case> {
    let about = "a man in the middle of one path at the first contact: an error before any data, with both keys and their paths";
    vec![
        Case::new(
            "first-contact/honest",
            "the same without an attacker: the key is believed, over two paths",
            |context| meet(context, None),
        ),
        Case::new("first-contact/middle-of-the-first-path", about, |context| meet(context, Some(0))).quick(),
        Case::new("first-contact/middle-of-the-second-path", about, |context| meet(context, Some(1))),
    ]
}

/// A client with two paths to the address of a server, one of which may lead to the attacker.
struct Hosts {
    client: Namespace,
    server: Namespace,
    impostor: Namespace,
}

impl Hosts {
    fn new(middle: Option<usize>) -> Result<Self> {
        let Pair { client, server, wires: _ } = Pair::new("first_contact")?;
        let impostor = Namespace::named("first_contact_middle")?;
        impostor.ip("link set lo up")?;
        for (number, (device, far)) in PATHS.into_iter().enumerate() {
            let host = if middle == Some(number) { &impostor } else { &server };
            let ends = veth((&client, device), (host, device))?;
            let near = [far[0], far[1], far[2], 1];
            for (end, address) in [(&ends.0, near), (&ends.1, far)] {
                end.add_address(Cidr::new(address.into(), 24))?;
                end.up()?;
            }
        }
        // The host at the end of the second path has the address of the server, too.
        let [(_, first), (device, second)] = PATHS.map(|(device, at)| (device, Ipv4Addr::from(at)));
        if let Some(middle) = middle {
            let behind_second = if middle == 1 { &impostor } else { &server };
            behind_second.ip(&format!("address add {first}/32 dev lo"))?;
        }
        client.ip(&format!("route add {first}/32 via {second} dev {device} metric 9"))?;
        Ok(Self { client, server, impostor })
    }
}

/// The client connects to the host there; the attacker in the middle answers with a key of its own.
fn meet(context: &Context<'_>, middle: Option<usize>) -> Result<Verdict> {
    let Hosts { client, server, impostor } = Hosts::new(middle)?;
    let [(_, address), _] = PATHS.map(|(device, at)| (device, Ipv4Addr::from(at)));
    let plait = |subcommand: &str, keys: &str| {
        let mut command = Command::new(&context.settings.plait);
        command.args([subcommand, "--keys"]).arg(context.directory.join(keys));
        command.args(context.settings.carrier.options());
        command
    };
    let listen = |host: &Namespace, name: &str| -> Result<Program> {
        let mut command = plait("listen", name);
        command.arg(PORT.to_string());
        for (device, _) in PATHS.iter().filter(|(device, _)| host.ip(&format!("link show {device}")).is_ok())
        {
            command.args(["--path", device]);
        }
        let mut program = Program::start(host, context.directory, name, command, End::Own, End::Own)?;
        program.wait_for_line("listening on port", START)?;
        Ok(program)
    };
    let honest = listen(&server, "server")?;
    let other = middle.map(|_| listen(&impostor, "impostor")).transpose()?;

    std::fs::write(context.directory.join("secret"), SECRET)?;
    let mut command = Command::new("setsid");
    // In a session of its own: no terminal can be asked.
    command.arg("--wait").arg("sh").arg("-c").arg("exec \"$@\" < secret").arg("sh");
    command.arg(&context.settings.plait).args([
        "connect",
        &address.to_string(),
        &PORT.to_string(),
        "--accept-new",
    ]);
    command.args(context.settings.carrier.options());
    command.args(["--path", "wan1", "--path", "wan2", "--keys"]).arg(context.directory.join("client"));
    command.current_dir(context.directory);
    let mut connecting = Program::start(&client, context.directory, "client", command, End::Own, End::Own)?;
    let code = connecting.wait(LONGEST)?.code();
    let (said, known) = (connecting.errors(), context.directory.join("client/known_peers"));
    let known = std::fs::read_to_string(known).unwrap_or_default();

    let Some(middle) = middle else {
        ensure!(code == Some(0) && known.contains("paths=2"), "exit {code:?}: {said}; known: {known:?}");
        ensure!(std::fs::read(honest.output())? == SECRET, "the server was given something else");
        return Ok(Verdict::Passed("believed over two paths".to_owned()));
    };
    ensure!(code != Some(0) && code.is_some(), "exit {code:?}: {said}");
    for (number, (device, _)) in PATHS.into_iter().enumerate() {
        let keys = if number == middle { "impostor" } else { "server" };
        let fingerprint = fingerprint(context, keys)?;
        ensure!(
            said.contains(&format!("{fingerprint}  on path {device}")),
            "{keys} on {device} is not named: {said}"
        );
    }
    ensure!(known.is_empty(), "a key was believed: {known}");
    for (end, program) in [("the server", Some(&honest)), ("the man in the middle", other.as_ref())] {
        let given = program.map(|program| std::fs::read(program.output())).transpose()?.unwrap_or_default();
        ensure!(given.is_empty(), "{end} was given {} bytes", given.len());
    }
    Ok(Verdict::Passed(format!(
        "exit {}, both keys named with their paths, no byte sent, no key believed",
        code.unwrap_or_default()
    )))
}

/// The fingerprint of the key in a directory of this case.
fn fingerprint(context: &Context<'_>, keys: &str) -> Result<String> {
    let mut command = Command::new(&context.settings.plait);
    let output = command.args(["key", "show", "--keys"]).arg(context.directory.join(keys)).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().context("no fingerprint")?.to_owned())
}
