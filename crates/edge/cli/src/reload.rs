//! Changes of the configuration while a command runs: at `plait reload`, and at SIGHUP (`crate::linux::service`).

use std::ffi::OsString;
use std::future::pending;
use std::net::IpAddr;
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use plait::{Path, PathControl, PathState};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::caps::{self, Cap};
use crate::configuration::InEffect;
use crate::configuration::hooks::Hooks;
use crate::options::Options;
use crate::system;
use crate::system::arguments::{Arguments, Command};

/// How long a process may take to answer `plait reload`.
const PATIENCE: Duration = Duration::from_secs(4);

/// The options that decide about clients: they wait for a restart.
const DOOR: [&str; 7] = ["allow-plain", "anyone", "keys", "listen", "plain", "policy", "protect"];
/// The options that decide what clients are let in to.
const SERVICE: [&str; 6] = ["allow", "forward", "proxy", "proxy-protocol", "resolver", "service"];

/// The command line of this process, and the options that are in effect. All tasks share it.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    typed: Vec<OsString>,
    followed: sync::Mutex<Followed>,
    asking: mpsc::Sender<oneshot::Sender<Reloaded>>,
    work: Mutex<Work>,
}

/// The settings that tasks follow.
#[derive(Default, Debug)]
struct Followed {
    paths: Vec<Path>,
    caps: Vec<Cap>,
    hooks: Hooks,
}

#[derive(Debug)]
struct Work {
    in_effect: InEffect,
    asked: mpsc::Receiver<oneshot::Sender<Reloaded>>,
}

/// The result of a reload.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// The options that have changed and are in effect now.
    pub(crate) changed: Vec<String>,
    /// The options that have changed and that only a restart puts into effect.
    pub(crate) needs_restart: Vec<String>,
    /// What could not be changed, and the reasons. If the file has a mistake, nothing is changed.
    pub(crate) errors: Vec<String>,
}

impl Reload {
    /// The words as they were typed, and what was read with them.
    pub(crate) fn new(typed: Vec<OsString>, arguments: &Arguments) -> Self {
        let (asking, asked) = mpsc::channel(1);
        let followed = sync::Mutex::new(Followed::of(arguments));
        let work = Mutex::new(Work { in_effect: arguments.in_effect.clone(), asked });
        Self(Arc::new(Inner { typed, followed, asking, work }))
    }

    fn followed(&self) -> sync::MutexGuard<'_, Followed> {
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs that are run at events.
    pub(crate) fn hooks(&self) -> Hooks {
        self.followed().hooks.clone()
    }

    /// The paths that are named, and their volumes.
    pub(crate) fn paths_and_caps(&self) -> (Vec<Path>, Vec<Cap>) {
        let followed = self.followed();
        (followed.paths.clone(), followed.caps.clone())
    }

    /// Asks the task that keeps the options, and waits for the result.
    pub(crate) async fn ask(&self) -> Reloaded {
        let asked = async {
            let (answer, answered) = oneshot::channel();
            self.0.asking.send(answer).await.ok()?;
            answered.await.ok()
        };
        let answered = tokio::time::timeout(PATIENCE, asked).await.ok().flatten();
        answered.unwrap_or_else(|| Reloaded::failed("the process is not ready for changes"))
    }

    /// Keeps a host in line with its options: reads them again whenever that is asked for, counts volumes, runs hooks. Never returns.
    ///
    /// `kind` is the name of the command. `towards` is the address that chooses the paths if none are named. `apply` puts the change of one
    /// option into effect, and returns whether it can.
    pub(crate) async fn keep(
        self,
        (paths, kind): (PathControl, &'static str),
        towards: Option<IpAddr>,
        apply: impl AsyncFnMut(&str, &Command) -> bool,
    ) {
        tokio::join!(self.follow(paths.clone(), towards, apply), system::upkeep(self.clone(), paths, kind));
    }

    async fn follow(
        &self,
        paths: PathControl,
        towards: Option<IpAddr>,
        mut apply: impl AsyncFnMut(&str, &Command) -> bool,
    ) {
        let mut work = self.0.work.lock().await;
        loop {
            // This value holds a sender: there is always another request.
            let Some(answer) = work.asked.recv().await else { return pending().await };
            let reloaded = self.again(&mut work.in_effect, (&paths, towards), &mut apply).await;
            reloaded.log();
            // The process that has asked may have ended.
            let _ = answer.send(reloaded);
        }
    }

    async fn again(
        &self,
        in_effect: &mut InEffect,
        (paths, towards): (&PathControl, Option<IpAddr>),
        apply: &mut impl AsyncFnMut(&str, &Command) -> bool,
    ) -> Reloaded {
        let new = match Arguments::read(self.0.typed.clone()) {
            Ok(new) => new,
            Err(error) => return Reloaded::failed(crate::configuration::in_short(&error)),
        };
        if let Some(options) = new.command.options()
            && let Err(error) = caps::check(&options.caps, &options.paths)
        {
            return Reloaded::failed(error);
        }
        let mut reloaded = Reloaded::default();
        let followed = Followed::of(&new);
        if self.followed().hooks != followed.hooks {
            reloaded.changed.push("hooks".to_owned());
        }
        *self.followed() = followed;
        let before = in_effect.clone();
        let has_changed = |name: &str| before.get(name) != new.in_effect.get(name);
        // A service must not become wider before the door that belongs to it is shut.
        let door_waits = DOOR.iter().any(|name| has_changed(name));
        let names = before.keys().chain(new.in_effect.keys().filter(|name| !before.contains_key(*name)));
        for name in names.filter(|name| has_changed(name)) {
            let is_in_effect = match name.as_str() {
                name if door_waits && SERVICE.contains(&name) => false,
                "path" => {
                    let failures = match new.command.options() {
                        Some(options) => change_paths(paths, (before.get(name), options), towards).await,
                        None => Vec::new(),
                    };
                    let is_changed = failures.is_empty();
                    reloaded.errors.extend(failures);
                    is_changed
                }
                // Counted with the next look.
                "cap" => true,
                "verbose" | "quiet" => {
                    plait_console::logging::change(&new.verbosity);
                    true
                }
                name => apply(name, &new.command).await,
            };
            // What is not in effect is named again by the next reload.
            if is_in_effect {
                match new.in_effect.get(name) {
                    Some(words) => in_effect.insert(name.clone(), words.clone()),
                    None => in_effect.remove(name),
                };
                reloaded.changed.push(name.clone());
            } else {
                reloaded.needs_restart.push(name.clone());
            }
        }
        reloaded
    }
}

/// Makes the paths those that are named now; returns the failures. A path that was changed by `plait path` stays as it is, unless the
/// configuration changes it.
async fn change_paths(
    control: &PathControl,
    (before, options): (Option<&Vec<String>>, &Options),
    towards: Option<IpAddr>,
) -> Vec<String> {
    let defaults = || Path::defaults(towards, options.carrier).map_err(anyhow::Error::from);
    let before = match before {
        Some(words) => words.iter().map(|path| Ok(path.parse()?)).collect(),
        None => defaults(),
    };
    let now = if options.paths.is_empty() { defaults() } else { Ok(options.paths.clone()) };
    let (before, now): (Vec<Path>, Vec<Path>) = match (before, now) {
        (Ok(before), Ok(now)) => (before, now),
        (Err(error), _) | (_, Err(error)) => return vec![error.to_string()],
    };
    let worked = control.paths().iter().any(PathState::is_up);
    let mut failures = Vec::new();
    let mut note = |path: &Path, result: Result<(), plait::Error>| {
        failures.extend(result.err().map(|error| format!("{path}: {error}")));
    };
    let same = |one: &Path, other: &Path| one.devices() == other.devices();
    for path in &now {
        match before.iter().find(|old| same(old, path)) {
            Some(old) if old == path => {}
            Some(_) => note(path, control.set(path.clone()).await),
            // An earlier reload may have added it.
            None => match control.add(path.clone()).await {
                Err(error) if control.set(path.clone()).await.is_err() => note(path, Err(error)),
                Ok(()) | Err(_) => {}
            },
        }
    }
    let (gone, other) = if works(control, &now) || !worked {
        (&before, &now)
    } else {
        // A misspelt device: a server that is reached over its paths must not lose them.
        failures.push("none of the new paths works: the earlier ones stay".to_owned());
        (&now, &before)
    };
    for path in gone.iter().filter(|path| !other.iter().any(|other| same(path, other))) {
        failures.extend(control.remove(path).await.err().map(|error| format!("{path}: {error}")));
    }
    failures
}

/// Whether a device of these paths works.
fn works(control: &PathControl, paths: &[Path]) -> bool {
    let devices: Vec<_> = Path::present(paths).unwrap_or_default().iter().map(Path::devices).collect();
    control.paths().iter().any(|path| path.is_up() && devices.iter().any(|device| device == path.device()))
}

impl Followed {
    fn of(arguments: &Arguments) -> Self {
        let hooks = arguments.hooks.clone();
        match arguments.command.options() {
            Some(options) => Self { paths: options.paths.clone(), caps: options.caps.clone(), hooks },
            None => Self { hooks, ..Self::default() },
        }
    }
}

impl Reloaded {
    fn failed(why: impl Into<String>) -> Self {
        Self { errors: vec![why.into()], ..Self::default() }
    }

    fn log(&self) {
        for error in &self.errors {
            tracing::error!("the configuration was read again, and not all of it is in effect: {error}");
        }
        if !self.needs_restart.is_empty() {
            let options = self.needs_restart.join(", ");
            tracing::warn!("the configuration was read again; a restart is needed for {options}");
        }
        let changed = self.changed.join(", ");
        tracing::info!(changed, "the configuration was read again");
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let list = |about: &str, words: &[String]| match words {
            [] => String::new(),
            words => format!("{about}: {}\n", words.join(", ")),
        };
        let changed = match (&self.changed[..], &self.errors[..]) {
            ([], []) if self.needs_restart.is_empty() => "nothing has changed\n".to_owned(),
            (changed, _) => list("changed", changed),
        };
        changed + &list("a restart is needed for", &self.needs_restart)
    }
}
