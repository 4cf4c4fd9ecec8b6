//! Programs that are run when paths go up and down.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, User};
use plait::{LOOPBACK, PathControl};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::configuration::hooks::Hooks;
use crate::output::say;
use crate::reload::Reload;
use crate::unix::is_root;

/// Time between two looks at the paths.
const LOOK: Duration = Duration::from_millis(250);
/// The same while there are no programs.
const IDLE: Duration = Duration::from_secs(2);
/// Time between two looks at a program that runs.
const PATIENCE: Duration = Duration::from_millis(20);

/// The devices of the paths, and whether each works.
type Devices = BTreeMap<String, bool>;

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Happened {
    event: &'static str,
    device: String,
    state: &'static str,
    /// The devices that work now.
    up: Vec<String>,
}

/// Runs the programs of the configuration at their events, one at a time. What happens while a program runs is seen after it. Never
/// returns.
pub(crate) async fn keep(reload: Reload, control: PathControl, kind: &'static str) {
    let mut before = Devices::new();
    let mut warned = false;
    loop {
        let now = devices(&control);
        let hooks = reload.hooks();
        if hooks.is_empty() {
            before = now;
            sleep(IDLE).await;
            continue;
        }
        for happened in differences(&before, &now) {
            let Some(program) = hooks.program(happened.event) else { continue };
            match permitted(&hooks) {
                Ok(user) => run(program.to_vec(), (happened, kind), (user, hooks.time_limit())).await,
                Err(error) if !warned => {
                    warned = true;
                    say(&format!("warning: no hook is run: {error:#}"));
                }
                Err(_) => {}
            }
        }
        before = now;
        sleep(LOOK).await;
    }
}

fn devices(control: &PathControl) -> Devices {
    let mut devices = Devices::new();
    for path in control.paths().iter().filter(|path| path.device() != LOOPBACK) {
        *devices.entry(path.device().to_owned()).or_default() |= path.is_up();
    }
    devices
}

/// The events between two states, those of single paths first.
fn differences(before: &Devices, now: &Devices) -> Vec<Happened> {
    let up: Vec<_> = now.iter().filter(|(_, is_up)| **is_up).map(|(device, _)| device.clone()).collect();
    let mut all = Vec::new();
    let mut note = |event, device: &str, state| {
        all.push(Happened { event, device: device.to_owned(), state, up: up.clone() });
    };
    for (device, is_up) in now {
        // A path that has never worked has not gone down.
        if before.get(device).copied().unwrap_or(false) != *is_up {
            note("path-change", device, if *is_up { "up" } else { "down" });
        }
    }
    for (device, was_up) in before {
        if *was_up && !now.contains_key(device) {
            note("path-change", device, "gone");
        }
    }
    let worked = before.values().any(|is_up| *is_up);
    match (worked, !up.is_empty()) {
        (false, true) => note("up", "", "up"),
        (true, false) => note("down", "", "down"),
        (false, false) | (true, true) => {}
    }
    all
}

/// The user to run programs as; `None`: the user of this process.
///
/// # Errors
/// This is root, and neither a user is named nor root asked for; or there is no such user.
fn permitted(hooks: &Hooks) -> anyhow::Result<Option<User>> {
    if let Some(name) = hooks.user() {
        let user =
            User::from_name(name)?.with_context(|| format!("there is no user {name} (hooks, user)"))?;
        anyhow::ensure!(
            is_root() || user.uid == nix::unistd::geteuid(),
            "only root can run programs as {name}"
        );
        return Ok(Some(user));
    }
    anyhow::ensure!(
        !is_root() || hooks.as_root(),
        "plait runs as root\n  fix: [hooks] user = \"daemon\", or as_root = true"
    );
    Ok(None)
}

/// Runs a program to its end or to the end of its time.
async fn run(
    program: Vec<String>,
    (happened, kind): (Happened, &'static str),
    how: (Option<User>, Duration),
) {
    let (ended, end) = oneshot::channel();
    let name = program.first().cloned().unwrap_or_default();
    let event = happened.event;
    // On a separate thread, so that only this thread drops its capabilities.
    let started = thread::Builder::new().name("hook".to_owned()).spawn(move || {
        let _ = ended.send(run_here(&program, &happened, kind, how));
    });
    let result = match started {
        Ok(_) => end.await.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())),
        Err(error) => Err(error),
    };
    match result {
        Ok(Some(status)) if status.success() => tracing::debug!(name, event, "a hook has ended"),
        Ok(Some(status)) => tracing::warn!(name, event, %status, "a hook has failed"),
        Ok(None) => tracing::warn!(name, event, "a hook was killed: its time was up (hooks, time_limit)"),
        Err(error) => tracing::warn!(name, event, %error, "a hook cannot be run"),
    }
}

/// The status of the program; `None` if it was killed.
fn run_here(
    program: &[String],
    happened: &Happened,
    kind: &str,
    (user, limit): (Option<User>, Duration),
) -> std::io::Result<Option<ExitStatus>> {
    // The program gets none of the capabilities that a unit of systemd gives to this process.
    if let Err(error) = rustix::thread::clear_ambient_capability_set() {
        tracing::debug!(%error, "there are no ambient capabilities");
    }
    let [name, arguments @ ..] = program else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    let mut command = Command::new(name);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("PLAIT_HOOK_EVENT", happened.event).env("PLAIT_HOOK_COMMAND", kind);
    command.env("PLAIT_HOOK_DEVICE", &happened.device).env("PLAIT_HOOK_STATE", happened.state);
    command.env("PLAIT_HOOK_UP", happened.up.join(" ")).env("PLAIT_HOOK_PID", std::process::id().to_string());
    if let Some(user) = user.filter(|_| is_root()) {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let mut child = command.current_dir("/").spawn()?;
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            // All processes of it. The program itself may have just ended.
            let group = i32::try_from(child.id()).map(Pid::from_raw);
            let _ = group.map(|group| killpg(group, Signal::SIGKILL));
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices_of(words: &[(&str, bool)]) -> Devices {
        words.iter().map(|(device, is_up)| ((*device).to_owned(), *is_up)).collect()
    }

    fn events(before: &[(&str, bool)], now: &[(&str, bool)]) -> Vec<String> {
        let all = differences(&devices_of(before), &devices_of(now));
        all.iter()
            .map(|one| format!("{} {} {} [{}]", one.event, one.device, one.state, one.up.join(" ")))
            .collect()
    }

    #[test]
    fn events_are_the_differences_of_the_paths() {
        assert_eq!(events(&[], &[("a", true), ("b", false)]), ["path-change a up [a]", "up  up [a]"]);
        assert_eq!(events(&[("a", true)], &[("a", true), ("b", true)]), ["path-change b up [a b]"]);
        assert_eq!(events(&[("a", true), ("b", true)], &[("b", true)]), ["path-change a gone [b]"]);
        assert_eq!(events(&[("a", true)], &[("a", false)]), ["path-change a down []", "down  down []"]);
        assert_eq!(events(&[("a", false)], &[]), [""; 0]);
    }

    #[test]
    fn a_program_has_the_event_and_nothing_else_of_our_environment() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("seen");
        let script = format!("env | sort > {}; exit 3", file.display());
        let program = ["/bin/sh", "-c", &script].map(str::to_owned);
        let happened = Happened { event: "up", device: String::new(), state: "up", up: vec!["a".to_owned()] };
        let status = run_here(&program, &happened, "serve", (None, Duration::from_secs(20))).expect("run");
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let seen = std::fs::read_to_string(file).expect("written");
        for line in ["PLAIT_HOOK_EVENT=up", "PLAIT_HOOK_COMMAND=serve", "PLAIT_HOOK_UP=a"] {
            assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
        }
        assert!(!seen.contains("CARGO"), "{seen}");
    }

    #[test]
    fn a_program_that_goes_on_is_killed_with_its_children() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("late");
        let script = format!("(sleep 2; touch {}) & sleep 60", file.display());
        let program = ["/bin/sh", "-c", &script].map(str::to_owned);
        let happened = Happened { event: "down", device: String::new(), state: "down", up: Vec::new() };
        let began = Instant::now();
        let status = run_here(&program, &happened, "serve", (None, Duration::from_millis(300))).expect("run");
        assert!(status.is_none() && began.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(2500));
        assert!(!file.exists(), "its children are killed as well");
    }
}
