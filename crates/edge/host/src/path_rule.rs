//! The rules of a host: the devices to use as paths, and their use.
//!
//! A rule outlasts the devices that it selects. A modem may come back under another name, a telephone may be plugged in later, and the
//! default route may move to another device. [`crate::selection`] applies the rules to the devices that are there.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use plait_mptcp::PathClass;
use wildmatch::WildMatch;

use crate::error::Error;
use crate::path::{PathSpec, Use, class_word};
use crate::sys::{BINDS_TO_DEVICES, Candidate, fault_of, fault_of_other_name};

/// Devices to use as paths, and how. They need not exist yet: a device is used when it appears.
///
/// | text | devices |
/// |---|---|
/// | `wlan0` | the device with this name, or with this alternative name |
/// | `usb*`, `eth?` | all devices with such a name |
/// | `mac:02:00:00:00:00:01` | the device with this link-layer address |
/// | `192.0.2.7`, `2001:db8::7` | the device with this address |
/// | `default` | the devices of the default routes |
///
/// The most specific rule counts for a device: its name before an address or an alternative name, these before a pattern, and a pattern before
/// `default`. Of several devices with one link-layer address, as a device and its VLANs have, a rule selects the one that has an address, and
/// of these the oldest.
///
/// ```
/// use plait_host::{PathClass, PathRule};
///
/// let rule: PathRule = "wwan*=untrusted,backup".parse()?;
/// assert_eq!(rule.class(), PathClass::Untrusted);
/// assert!(rule.is_backup());
/// # Ok::<(), plait_host::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct PathRule {
    selector: Selector,
    class: PathClass,
    use_as: Use,
}

/// The devices of a rule.
#[derive(Clone, PartialEq, Debug)]
enum Selector {
    Name(String),
    Pattern(WildMatch),
    LinkAddress(String),
    Address(IpAddr),
    Default,
}

/// The precedence among the rules that select a device, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Precedence {
    Default,
    Pattern,
    OneDevice,
    Name,
}

/// The text of a rule for the default routes. The kernel accepts no device of that name.
const DEFAULT: &str = "default";
/// Stands before a link-layer address.
const LINK_ADDRESS: &str = "mac:";

impl PathRule {
    /// Returns a rule for these devices, trusted and not backups. The text is one of the table above.
    ///
    /// # Errors
    /// The text is none of them.
    pub fn new(devices: &str) -> Result<Self, Error> {
        let selector =
            Selector::of(devices).map_err(|reason| Error::DeviceName { name: devices.to_owned(), reason })?;
        Ok(Self { selector, class: PathClass::default(), use_as: Use::Regular })
    }

    /// Returns the rule for the devices of the default routes.
    #[must_use]
    pub fn default_routes() -> Self {
        Self { selector: Selector::Default, class: PathClass::default(), use_as: Use::Regular }
    }

    /// Sets the class.
    #[must_use]
    pub fn with_class(mut self, class: PathClass) -> Self {
        self.class = class;
        self
    }

    /// Makes the paths backups, used only when no other path works.
    #[must_use]
    pub fn as_backup(mut self) -> Self {
        self.use_as = Use::Backup;
        self
    }

    /// Its devices, as in its text.
    #[must_use]
    pub fn devices(&self) -> String {
        self.selector.to_string()
    }

    /// The trust level.
    #[must_use]
    pub fn class(&self) -> PathClass {
        self.class
    }

    /// Whether its paths are used only when no other path works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.use_as == Use::Backup
    }

    /// Whether both rules are for the same devices.
    pub(crate) fn has_devices_of(&self, other: &Self) -> bool {
        self.selector == other.selector
    }

    /// Whether it selects one device at most.
    pub(crate) fn is_for_one_device(&self) -> bool {
        self.precedence("") == Precedence::OneDevice
    }

    /// Its precedence among the rules that select the device of this name.
    pub(crate) fn precedence(&self, device: &str) -> Precedence {
        match &self.selector {
            Selector::Name(name) if name == device => Precedence::Name,
            Selector::Name(_) | Selector::LinkAddress(_) | Selector::Address(_) => Precedence::OneDevice,
            Selector::Pattern(_) => Precedence::Pattern,
            Selector::Default => Precedence::Default,
        }
    }

    /// The only name that its device can have, as long as it is not an alternative name of a device.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.selector {
            Selector::Name(name) => Some(name).filter(|name| fault_of(name).is_none()).map(String::as_str),
            Selector::Pattern(_) | Selector::LinkAddress(_) | Selector::Address(_) | Selector::Default => {
                None
            }
        }
    }

    /// Whether it selects this device. `has_default_route` is for the device, too.
    pub(crate) fn selects(&self, device: &Candidate<'_>, has_default_route: bool) -> bool {
        match &self.selector {
            Selector::Name(name) => name == device.name || device.other_names.contains(name),
            Selector::Pattern(pattern) => !device.is_loopback && pattern.matches(device.name),
            Selector::LinkAddress(address) => device.link_addresses.contains(&address.as_str()),
            Selector::Address(address) => device.addresses.contains(address),
            Selector::Default => has_default_route,
        }
    }

    /// Whether it selects this device, or may do so if the device has a default route.
    #[cfg(target_os = "linux")]
    pub(crate) fn may_select(&self, device: &Candidate<'_>) -> bool {
        self.selects(device, true)
    }

    /// The same rule for a single device, by its name.
    pub(crate) fn for_device(&self, device: &str) -> Result<Self, Error> {
        Ok(Self { selector: Self::new(device)?.selector, ..self.clone() })
    }

    /// A path by this rule over a device.
    pub(crate) fn path(&self, device: &str) -> Result<PathSpec, Error> {
        let path = PathSpec::new(device)?.with_class(self.class);
        Ok(if self.is_backup() { path.into_backup() } else { path })
    }
}

impl Selector {
    fn of(text: &str) -> Result<Self, &'static str> {
        if text == DEFAULT {
            return Ok(Self::Default);
        }
        if let Some(address) = text.strip_prefix(LINK_ADDRESS) {
            let is_byte = |byte: &str| byte.len() == 2 && byte.chars().all(|c| c.is_ascii_hexdigit());
            let address = address.to_ascii_lowercase();
            let is_it = address.split(':').count() >= 6 && address.split(':').all(is_byte);
            return is_it
                .then_some(Self::LinkAddress(address))
                .ok_or("mac: needs six bytes, as 02:00:00:00:00:01");
        }
        if BINDS_TO_DEVICES && let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        // The name becomes a word for `ip` and a string for `nft`.
        let plain: String = text.chars().filter(|c| !matches!(c, '*' | '?')).collect();
        if plain != text && BINDS_TO_DEVICES {
            let fault = (!plain.is_empty()).then(|| fault_of(&plain)).flatten();
            return fault.map_or_else(|| Ok(Self::Pattern(WildMatch::new(text))), Err);
        }
        fault_of_other_name(text).map_or_else(|| Ok(Self::Name(text.to_owned())), Err)
    }
}

/// As it can be parsed again.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Pattern(pattern) => pattern.fmt(f),
            Self::LinkAddress(address) => write!(f, "{LINK_ADDRESS}{address}"),
            Self::Address(address) => address.fmt(f),
            Self::Default => f.write_str(DEFAULT),
        }
    }
}

/// As it can be parsed again.
impl fmt::Display for PathRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = class_word(self.class);
        write!(f, "{}={class}{}", self.selector, if self.is_backup() { ",backup" } else { "" })
    }
}

/// `DEVICES`, or `DEVICES=` and some of `trusted`, `untrusted`, `never`, `backup` with commas between them.
impl FromStr for PathRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (devices, attributes) = text.split_once('=').unwrap_or((text, ""));
        let mut rule = Self::new(devices)?;
        for attribute in attributes.split(',').filter(|attribute| !attribute.is_empty()) {
            rule = match attribute {
                "trusted" => rule.with_class(PathClass::Trusted),
                "untrusted" => rule.with_class(PathClass::Untrusted),
                "never" => rule.with_class(PathClass::Never),
                "backup" => rule.as_backup(),
                _ => {
                    let reason = "behind '=' stand trusted, untrusted, never or backup";
                    return Err(Error::DeviceName { name: text.to_owned(), reason });
                }
            };
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_stand_behind_the_device() {
        let plain: PathRule = "eth0".parse().expect("a device");
        assert_eq!((plain.class(), plain.is_backup()), (PathClass::Trusted, false));
        let backup: PathRule = "eth0.7=backup".parse().expect("a device");
        assert_eq!(backup.to_string(), "eth0.7=trusted,backup");
        assert_eq!((backup.class(), backup.is_backup()), (PathClass::Trusted, true));
        let never: PathRule = "wlp3s0=never".parse().expect("a device");
        assert_eq!(never.class(), PathClass::Never);
    }

    #[test]
    fn names_that_would_be_read_otherwise_by_other_programs_are_refused() {
        let long = "a".repeat(128);
        for name in [
            "",
            "-all",
            "a b",
            "x\"; drop",
            "../eth0",
            "..",
            "eth0;",
            "é",
            "-*",
            "a b*",
            "an-alternative-name; drop",
            "mac:02:00",
            "mac:02:00:00:00:00:0g",
            &long,
        ] {
            assert!(PathRule::new(name).is_err(), "{name:?}");
        }
        assert!("eth0=fast".parse::<PathRule>().is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn each_form_selects_its_devices_and_can_be_parsed_again() {
        let other_names = ["a-long-alternative-name".to_owned()];
        let addresses = ["192.0.2.7".parse().expect("an address")];
        let link_addresses = ["02:00:00:00:00:0a"];
        let device = Candidate {
            name: "usb0",
            other_names: &other_names,
            link_addresses: link_addresses.to_vec(),
            addresses: addresses.to_vec(),
            index: 7,
            is_loopback: false,
        };
        let loopback = Candidate { name: "lo", is_loopback: true, ..device.clone() };
        for (text, selects) in [
            ("usb0", true),
            ("usb1", false),
            ("a-long-alternative-name", true),
            ("usb*", true),
            ("usb?", true),
            ("usb", false),
            ("*", true),
            ("eth*", false),
            ("mac:02:00:00:00:00:0A", true),
            ("mac:02:00:00:00:00:0b", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("default", false),
        ] {
            let rule: PathRule = text.parse().expect(text);
            assert_eq!(rule.selects(&device, false), selects, "{text}");
            assert_eq!(rule.to_string().parse::<PathRule>().expect(text), rule);
        }
        assert!(PathRule::default_routes().selects(&device, true));
        assert!(!PathRule::new("*").expect("a pattern").selects(&loopback, false));
        assert!(PathRule::new("lo").expect("a name").selects(&loopback, false));
    }
}
