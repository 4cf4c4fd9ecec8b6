//! Volumes that paths may carry in a month.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use plait::{Path, TrustLevel};

/// A volume for the devices of a path, and what happens beyond it: `DEV=20GB/month@5,never`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cap {
    /// The devices, as in the path.
    pub(crate) devices: String,
    /// Bytes, both directions together.
    pub(crate) bytes: u64,
    /// The day of the month on which counting begins anew, 1 to 31. Shorter months have it on their last day.
    day: i8,
    over: Over,
}

/// The use of a path beyond its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// It is a backup.
    Backup,
    /// It carries nothing.
    Never,
}

/// Units of volumes. Providers count in powers of ten.
const UNITS: [(&str, u64); 8] = [
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Checks that each volume belongs to a path.
///
/// # Errors
/// There is no path with these devices.
pub(crate) fn check(caps: &[Cap], paths: &[Path]) -> Result<(), String> {
    let stray = caps.iter().find(|cap| !paths.iter().any(|path| path.devices() == cap.devices));
    stray.map_or(Ok(()), |cap| Err(format!("--cap {cap}: there is no --path for {}", cap.devices)))
}

impl Cap {
    /// The first day of the month of this cap that `today` is in.
    pub(crate) fn since(&self, today: Date) -> Date {
        let on = |date: Date| {
            let day = self.day.min(date.days_in_month());
            date.with().day(day).build().unwrap_or(date)
        };
        let this = on(today);
        if this <= today {
            return this;
        }
        // The last day of the month before: a day that it has.
        let before = today.first_of_month().yesterday().unwrap_or(today);
        on(before)
    }

    /// The use of a path once its volume is used up.
    pub(crate) fn beyond(&self, path: &Path) -> Path {
        match self.over {
            Over::Backup => path.clone().backup(),
            Over::Never => path.clone().trust_level(TrustLevel::Never),
        }
    }
}

/// `DEV=SIZE/month`, and possibly `@DAY`, and `,backup` or `,never`.
impl FromStr for Cap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "not DEV=SIZE/month[@DAY][,never], as in wwan0=20GB/month@5";
        let (devices, rest) = text.split_once('=').ok_or(FORM)?;
        let devices = Path::new(devices).map_err(|error| error.to_string())?.devices();
        let (rest, over) = match rest.split_once(',') {
            None => (rest, Over::Backup),
            Some((rest, "backup")) => (rest, Over::Backup),
            Some((rest, "never")) => (rest, Over::Never),
            Some(_) => return Err("beyond its volume a path is `backup` (default) or `never`".to_owned()),
        };
        let (size, period) = rest.split_once('/').ok_or(FORM)?;
        let (period, day) = period.split_once('@').unwrap_or((period, "1"));
        let day =
            day.parse().ok().filter(|day| (1..=31).contains(day)).ok_or("not a day of a month, 1 to 31")?;
        if period.trim() != "month" {
            return Err("a volume is for a /month".to_owned());
        }
        Ok(Self { devices, bytes: volume(size.trim())?, day, over })
    }
}

fn volume(text: &str) -> Result<u64, String> {
    const FORM: &str = "not a volume, as in 500MB, 20 GB or 1.5TB";
    let at = text.find(|c: char| c.is_alphabetic()).ok_or(FORM)?;
    let (number, unit) = text.split_at(at);
    let (_, unit) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or(FORM)?;
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let whole: u64 = whole.parse().map_err(|_| FORM)?;
    let thousandths: u64 =
        format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).ok_or(FORM)?;
    let bytes = whole.checked_mul(*unit).and_then(|bytes| bytes.checked_add(thousandths * (unit / 1000)));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| FORM.to_owned())
}

/// As it can be parsed again.
impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = match self.over {
            Over::Backup => "",
            Over::Never => ",never",
        };
        write!(f, "{}={}kB/month@{}{over}", self.devices, self.bytes.div_ceil(1000), self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(text: &str) -> Cap {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_volume_has_a_unit_a_month_and_perhaps_a_day() {
        for (text, bytes) in [
            ("wwan0=20GB/month@5", 20_000_000_000),
            ("wwan*=20 GB/month", 20_000_000_000),
            ("mac:02:00:00:00:00:01=1.5 TB/month@31,never", 1_500_000_000_000),
            ("usb0=512MiB/month,backup", 512 << 20),
        ] {
            assert_eq!(cap(text).bytes, bytes, "{text}");
            assert_eq!(
                cap(&cap(text).to_string()).since(date(2026, 3, 31)),
                cap(text).since(date(2026, 3, 31))
            );
        }
        for bad in [
            "",
            "wwan0",
            "wwan0=20GB",
            "wwan0=20/month",
            "wwan0=20GB/week",
            "wwan0=20GB/month@0",
            "wwan0=20GB/month@32",
            "wwan0=0GB/month",
            "wwan0=-1GB/month",
            "wwan0=99999999TB/month",
            "wwan0=20GB/month,slow",
            "=20GB/month",
        ] {
            assert!(bad.parse::<Cap>().is_err(), "{bad}");
        }
    }

    fn date(year: i16, month: i8, day: i8) -> Date {
        Date::new(year, month, day).expect("a day")
    }

    #[test]
    fn counting_begins_on_its_day_or_on_the_last_day_of_a_shorter_month() {
        let since = |day: i8, today: Date| cap(&format!("wwan0=1GB/month@{day}")).since(today);
        assert_eq!(since(5, date(2026, 3, 5)), date(2026, 3, 5));
        assert_eq!(since(5, date(2026, 3, 4)), date(2026, 2, 5));
        assert_eq!(since(1, date(2026, 1, 1)), date(2026, 1, 1));
        assert_eq!(since(31, date(2026, 2, 28)), date(2026, 2, 28));
        assert_eq!(since(31, date(2026, 3, 30)), date(2026, 2, 28));
        assert_eq!(since(31, date(2028, 3, 30)), date(2028, 2, 29));
        assert_eq!(since(20, date(2026, 1, 19)), date(2025, 12, 20));
    }
}
