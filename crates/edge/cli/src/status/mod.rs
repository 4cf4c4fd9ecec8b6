//! The status of a connection, for people and for programs.

mod datagrams;
mod report;
mod words;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use plait::{Host, Status};

use crate::options::Options;
use crate::output;
use crate::running::About;

#[cfg(target_os = "linux")]
pub(crate) use report::{HostReport, shared_network_of};
pub(crate) use report::{Report, SCHEMA};

/// Reports connections if the options ask for it.
pub(crate) struct Reporter {
    on_standard_error: bool,
    json: Option<Box<dyn Write + Send>>,
}

/// Reports with `-v` the carrier of a new connection on each path, and the reason against the other one.
pub(crate) fn log_carriers(status: Option<&Status>) {
    for choice in status.map(Status::carriers).unwrap_or_default() {
        let (path, carrier) = (choice.device, choice.carrier);
        match choice.why_not {
            None => tracing::info!(path, %carrier, "in use"),
            Some(why) => tracing::info!(path, %carrier, why, "not in use"),
        }
    }
}

/// `-` is standard error: standard output may be the other end of the connection.
fn open(file: &Path) -> anyhow::Result<Box<dyn Write + Send>> {
    if file == Path::new("-") {
        return Ok(Box::new(output::Log));
    }
    let created =
        File::create(file).with_context(|| format!("cannot write the status to {}", file.display()));
    Ok(Box::new(created?))
}

impl Reporter {
    /// Creates or empties the file, so that an error shows before anything else happens.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Self> {
        let json = options.status_json.as_deref().map(open).transpose()?;
        Ok(Self { on_standard_error: options.status, json })
    }

    /// Reports one connection, and the counters of its host at present.
    pub(crate) fn report(&mut self, host: &Host, about: &About, status: &Status) -> anyhow::Result<()> {
        let report = Report::new(Some(host), about, status);
        if self.on_standard_error {
            output::say_lines(&report.words());
        }
        if let Some(file) = &mut self.json {
            let mut line = serde_json::to_string(&report)?;
            line.push('\n');
            file.write_all(line.as_bytes()).context("cannot write the status")?;
        }
        Ok(())
    }
}
