//! The certificate of `serve` and `listen`: read again when its files change, with a warning before it ends.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use plait::{Certificate, SharedCertificate, Validity, read_secret};
use plait_keys::Stamp;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::certificate::read;
use crate::linux::service::Reloads;
use crate::output::say;
use crate::running::{Level, Running};

/// Time between two looks at the files. A change counts after two equal looks: a certificate and its key are two files, and a program
/// replaces one after the other.
const LOOK: Duration = Duration::from_secs(1);
/// Time after which files that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(60);
const DAY: u64 = 24 * 60 * 60;
/// Time before the end from which on a warning is due. Programs that renew certificates do so a third of the life before the end, and must
/// not be too late by then: for certificates of less than four months it is a quarter of the life.
const WARN_BEFORE: u64 = 30 * DAY;

/// A certificate and the files that it is in.
#[derive(Debug)]
pub(crate) struct Renewal {
    files: Files,
    shown: SharedCertificate,
    /// The files as they were read last.
    read: Stamps,
    /// The files at the last look.
    seen: Stamps,
    /// The last failure: the files, the reason, and the time of the next attempt.
    failed: Option<(Stamps, String, Instant)>,
    calendar: Calendar,
}

/// The files of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

/// Of the chain and of the key; `None` for a missing file. Symbolic links are followed.
type Stamps = [Option<Stamp>; 2];

/// The warnings about the dates of a certificate.
#[derive(Debug, Default)]
struct Calendar {
    validity: Option<Validity>,
    /// The last warning, and its time.
    last: Option<(Standing, u64)>,
}

/// The relation of a certificate to the current time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    NotYet,
    Valid,
    EndsSoon,
    Ended,
}

impl Files {
    fn read(&self) -> anyhow::Result<Certificate> {
        let Self { chain, key } = self;
        let pem = read(chain)?;
        let read = Certificate::from_pem(&pem, &read_secret(key)?);
        read.with_context(|| format!("in {} and {}", chain.display(), key.display()))
    }

    fn stamps(&self) -> Stamps {
        [&self.chain, &self.key].map(|file| Stamp::of(file).ok())
    }
}

impl Renewal {
    /// Reads the certificate, and warns if it is not valid now or ends soon.
    pub(crate) fn begin(files: Files) -> anyhow::Result<Self> {
        let stamps = files.stamps();
        let certificate = files.read()?;
        let mut calendar = Calendar::of(&certificate);
        if let Some((what, fix)) = calendar.due(unix_time(), &files) {
            say(&format!("warning: {what}\n  fix: {fix}"));
        }
        let shown = SharedCertificate::new(certificate);
        Ok(Self { files, shown, read: stamps, seen: stamps, failed: None, calendar })
    }

    /// The certificate for the handshakes.
    pub(crate) fn shown(&self) -> SharedCertificate {
        self.shown.clone()
    }

    /// Keeps the certificate up to date, and its state among the messages about the health of `running`, and reads it again at each request.
    /// Never returns.
    pub(crate) async fn keep(mut self, running: Running, mut reloads: Reloads) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => self.look(&running),
                Some(_done) = reloads.recv() => self.read(self.files.stamps(), &running),
            }
            self.report(&running);
            if let Some((what, fix)) = self.calendar.due(unix_time(), &self.files) {
                tracing::warn!("{what}; fix: {fix}");
            }
        }
    }

    /// Reads the files if they have changed since they were read, and not since the last look.
    fn look(&mut self, running: &Running) {
        let now = self.files.stamps();
        let has_settled = now == std::mem::replace(&mut self.seen, now);
        let is_due = self.failed.as_ref().is_some_and(|(_, _, again)| *again <= Instant::now());
        if has_settled && (now != self.read || is_due) {
            self.read(now, running);
        }
    }

    fn read(&mut self, stamps: Stamps, running: &Running) {
        self.read = stamps;
        match self.files.read() {
            Ok(certificate) => {
                self.calendar = Calendar::of(&certificate);
                self.shown.replace(certificate);
                self.failed = None;
                running.has_read_certificate();
                let until = self.calendar.validity.map(|validity| date(validity.not_after));
                let (file, until) = (self.files.chain.display(), until.unwrap_or_default());
                tracing::info!(%file, until, "the certificate was read again: new connections get it");
            }
            Err(error) => {
                let again = error.to_string();
                if self
                    .failed
                    .as_ref()
                    .is_none_or(|(stamps, before, _)| (stamps, before) != (&self.read, &again))
                {
                    tracing::warn!(
                        "the certificate was not read again, and the earlier one stays: {error:#}"
                    );
                }
                // The permissions may be set a moment later, which changes no stamp.
                self.failed = Some((self.read, again, Instant::now() + AGAIN));
            }
        }
    }
}

impl Renewal {
    fn report(&self, running: &Running) {
        let file = self.files.chain.display();
        let standing = self.calendar.validity.map_or(Standing::Valid, |it| Standing::at(unix_time(), it));
        let (level, what) = match standing {
            Standing::Valid => (Level::Warning, None),
            Standing::EndsSoon => (Level::Warning, Some("ends soon")),
            Standing::NotYet => (Level::Error, Some("is not valid yet")),
            Standing::Ended => (Level::Error, Some("has expired")),
        };
        match what {
            Some(what) => running.warn(level, "certificate", format!("the certificate in {file} {what}")),
            None => running.take_back("certificate"),
        }
        match &self.failed {
            Some((_, why, _)) => {
                let text = format!("the certificate was not read again, and the earlier one stays: {why}");
                running.warn(Level::Warning, "certificate-unread", text);
            }
            None => running.take_back("certificate-unread"),
        }
    }
}

impl Calendar {
    fn of(certificate: &Certificate) -> Self {
        Self { validity: certificate.validity(), last: None }
    }

    /// Returns the next warning and its fix, if a warning is due at this time: at once after a change, and then once a day.
    fn due(&mut self, now: u64, files: &Files) -> Option<(String, String)> {
        let validity = self.validity?;
        let standing = Standing::at(now, validity);
        let is_known = |(last, time)| last == standing && now.saturating_sub(time) < DAY;
        if standing == Standing::Valid || self.last.is_some_and(is_known) {
            return None;
        }
        self.last = Some((standing, now));
        let (file, refuse) = (files.chain.display(), "clients that use --ca refuse this server");
        let renew = format!("renew it in {file}: it is read again, without a restart");
        Some(match standing {
            Standing::NotYet => (
                format!(
                    "the certificate in {file} is not valid before {}, and it is {} by the clock of this machine: {refuse}",
                    date(validity.not_before),
                    date(now)
                ),
                "set the clock, or use a certificate that is valid now".to_owned(),
            ),
            Standing::Ended => (
                format!("the certificate in {file} has expired, at {}: {refuse}", date(validity.not_after)),
                renew,
            ),
            Standing::Valid | Standing::EndsSoon => (
                format!(
                    "the certificate in {file} ends in {}, at {}",
                    rest(validity.not_after.saturating_sub(now)),
                    date(validity.not_after)
                ),
                renew,
            ),
        })
    }
}

impl Standing {
    fn at(now: u64, validity: Validity) -> Self {
        let Validity { not_before, not_after } = validity;
        let warn_before = WARN_BEFORE.min(not_after.saturating_sub(not_before) / 4);
        if now < not_before {
            Self::NotYet
        } else if now > not_after {
            Self::Ended
        } else if not_after - now <= warn_before {
            Self::EndsSoon
        } else {
            Self::Valid
        }
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// As RFC 3339 writes it.
fn date(unix_time: u64) -> String {
    let time = i64::try_from(unix_time).ok().and_then(|time| jiff::Timestamp::from_second(time).ok());
    time.map_or_else(|| format!("second {unix_time}"), |time| time.to_string())
}

fn rest(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{} minutes", seconds / 60),
        3600..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times, in hours, of the warnings about a certificate that is valid for so many hours, and the words of each.
    fn warnings(life: u64, until: u64) -> Vec<(u64, &'static str)> {
        let (begin, hour) = (1_700_000_000, 3600);
        let validity = Some(Validity { not_before: begin, not_after: begin + life * hour });
        let mut calendar = Calendar { validity, last: None };
        let files = Files { chain: "gw.pem".into(), key: "gw.key".into() };
        let mut due = |at: u64| {
            let (what, _) = calendar.due(begin - 2 * hour + at * hour, &files)?;
            let words = ["not valid before", "ends in", "has expired"].into_iter();
            Some((at, words.into_iter().find(|words| what.contains(words)).expect("one of them")))
        };
        (0..until + 2).filter_map(&mut due).map(|(at, words)| (at.saturating_sub(2), words)).collect()
    }

    #[test]
    fn a_warning_comes_thirty_days_before_the_end_and_then_once_a_day() {
        let year = 365 * 24;
        let found = warnings(year, year + 60);
        assert_eq!(found[0], (0, "not valid before"));
        let soon: Vec<_> = found.iter().filter(|(_, words)| *words == "ends in").map(|(at, _)| *at).collect();
        assert_eq!((soon[0], soon[1], soon.len()), (year - 720, year - 696, 31));
        let ended: Vec<_> = found.iter().filter(|(_, words)| *words == "has expired").collect();
        assert_eq!(
            ended,
            [&(year + 1, "has expired"), &(year + 25, "has expired"), &(year + 49, "has expired")]
        );
    }

    #[test]
    fn the_warning_about_a_short_lived_certificate_comes_after_its_usual_renewal() {
        assert_eq!(
            warnings(24, 30),
            [(0, "not valid before"), (18, "ends in"), (25, "has expired")],
            "it is renewed 8 hours before its end"
        );
        assert_eq!(warnings(90 * 24, 90 * 24)[1], (90 * 24 - 540, "ends in"), "renewed 30 days before");
    }

    #[test]
    fn what_is_left_is_said_in_a_fitting_unit() {
        assert_eq!(
            [1799, 7200, 172_799, 10 * DAY].map(rest),
            ["29 minutes", "2 hours", "47 hours", "10 days"]
        );
    }
}
