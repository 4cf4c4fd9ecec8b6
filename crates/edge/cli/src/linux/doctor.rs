//! `plait doctor`: missing prerequisites of this machine, and what the paths to a server let through.

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use plait::Path;
use plait_console::exit::in_a_line;
use plait_proxy::url::ServerUrl;
use serde_json::{Value, json};

use crate::check::{Report, Trial};
use crate::exit;
use crate::linux::prerequisite::{self, Check, MissingPrerequisite};
use crate::output;
use crate::status::SCHEMA;

/// Report missing prerequisites, obstacles of the paths, faults of the plaits that run, and the fix of each; with --server also what each path lets through to it, as `plait check` does.
#[derive(Debug, Args)]
#[command(after_help = exit::EXPLANATION_OF_DOCTOR)]
pub(crate) struct Doctor {
    /// Also try the paths to this server: plait://HOST:7443#FINGERPRINT, as `plait serve` prints it.
    #[arg(short, long, value_name = "SERVER", env = "PLAIT_SERVER")]
    server: Option<ServerUrl>,
    #[command(flatten)]
    trial: Trial,
    /// Print as JSON: {"schema": 1, "kind": "doctor", "checks": [{"name", "ok", "required", "needed_by", and "found" or "why" and
    /// "fix"}], "server": null, or what `plait check --json` writes}.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Whether it also asks a server.
    pub(crate) fn asks_a_server(&self) -> bool {
        self.server.is_some()
    }

    /// `requires` of clap cannot express this for options that a variable of the environment may give: the variable alone asks for
    /// nothing.
    pub(crate) fn lack(&self, given: &ArgMatches) -> Option<&'static str> {
        let was_typed = |option: &str| given.value_source(option) == Some(ValueSource::CommandLine);
        let is_in_vain = self.server.is_none() && ["carrier", "keys"].into_iter().any(was_typed);
        is_in_vain
            .then_some("--carrier and --keys are about the way to a server: they need --server <SERVER>")
    }

    /// Reports each check of the machine and each path to the server. The result is the first missing prerequisite that matters,
    /// otherwise whether a path works.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (checks, missing) = self.check_machine()?;
        let ways = match &self.server {
            Some(server) => Some(self.trial.run(server).await),
            None => None,
        };
        let text = match &ways {
            None if self.json => line_of_json(&checks, &Value::Null),
            Some(Ok(report)) if self.json => line_of_json(&checks, &serde_json::to_value(report)?),
            Some(Err(error)) if self.json => line_of_json(&checks, &json!({ "why": in_a_line(error) })),
            None => String::new(),
            Some(Ok(report)) => format!("\n{}", report.words()),
            Some(Err(error)) => format!("\nno way to the server can be tried: {}\n", in_a_line(error)),
        };
        write(&text)?;
        match (missing, ways) {
            (Some(missing), _) => Err(missing.into()),
            (None, Some(ways)) => ways.and_then(Report::usability),
            (None, None) => Ok(()),
        }
    }

    /// The devices of the paths that were named, or those of the default routes.
    fn devices(&self) -> anyhow::Result<Vec<String>> {
        let paths = match &self.trial.paths[..] {
            [] => Path::present(&[Path::default_routes()])?,
            paths => Path::present(paths)?,
        };
        if paths.is_empty() {
            bail!(
                "no device of this host is a path: it has no default route\n  fix: name the devices to use with --path"
            );
        }
        Ok(paths.iter().map(Path::devices).collect())
    }

    /// Returns the report for programs, and the first required prerequisite that is missing. Results for people are printed as they
    /// come.
    fn check_machine(&self) -> anyhow::Result<(Vec<Value>, Option<MissingPrerequisite>)> {
        let mut first = None;
        let mut checks = Vec::new();
        for check in Check::ALL {
            let outcome = check.check();
            if self.json {
                checks.push(check.json(&outcome));
            } else {
                write(&format!("{}\n", check.line(&outcome)))?;
            }
            if let (Err(missing), true, None) = (outcome, check.is_required(), &first) {
                first = Some(missing);
            }
        }
        let paths = prerequisite::paths(self.devices().map_err(|error| in_a_line(&error)));
        let running = prerequisite::running();
        if self.json {
            checks.extend([prerequisite::json_of_paths(&paths), prerequisite::json_of_running(&running)]);
        } else {
            let lines = [prerequisite::line_of_paths(&paths), prerequisite::line_of_running(&running)];
            write(&(lines.join("\n") + "\n"))?;
        }
        Ok((checks, first))
    }
}

fn line_of_json(checks: &[Value], server: &Value) -> String {
    format!("{}\n", json!({ "schema": SCHEMA, "kind": "doctor", "checks": checks, "server": server }))
}

fn write(text: &str) -> anyhow::Result<()> {
    output::result(text)
}
