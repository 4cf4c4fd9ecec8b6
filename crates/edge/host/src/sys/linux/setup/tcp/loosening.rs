//! Makes the kernel's check of sources loose for devices that datagrams arrive on, too ([`super::super::source_check`]).

use std::collections::BTreeSet;

use super::super::snapshot::Snapshot;
use super::super::source_check::{LOOSE, setting, strict_source_check};
use super::sysctl::Journal;
use crate::log::{debug, info};

/// The devices whose check a host has made loose, by the kernel's number: a device that comes again has a new number and the old setting.
#[derive(Default, Debug)]
pub(super) struct Loosened(BTreeSet<u32>);

/// Makes the check of this device loose and returns true, if the value before can be noted in the journal, which restores it.
fn loosen(journal: &Journal, device: &str) -> bool {
    let name = setting(device);
    let before = journal.value(&name);
    match journal.open_behind(&[name], LOOSE, || Ok(())) {
        Ok(false) => false,
        Ok(true) => {
            info!(
                device,
                before,
                now = LOOSE,
                "the kernel's check of sources (rp_filter) is loose while plait runs: answers over UDP arrive"
            );
            true
        }
        Err(error) => {
            // The path over UDP warns of the setting.
            debug!(%error, device, "the check of sources stays strict");
            false
        }
    }
}

impl Loosened {
    /// Makes the check of these devices loose where it would drop answers from beyond the default route, once for each device: an
    /// administrator may set it again.
    pub(super) fn extend<'a>(
        &mut self,
        journal: &Journal,
        snapshot: &Snapshot,
        devices: impl Iterator<Item = &'a str>,
    ) {
        for (device, link) in devices.filter_map(|device| Some((device, snapshot.link(device)?))) {
            let Some(own) = link.v4().filter(|_| link.is_up() && snapshot.leads_out(device)) else {
                continue;
            };
            let is_new = !self.0.contains(&link.index);
            if is_new && strict_source_check(device, own, None).is_some() && loosen(journal, device) {
                self.0.insert(link.index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_check_stays_strict_if_the_value_before_cannot_be_noted() {
        let settings = std::env::temp_dir().join(format!("plait-source-check-{}", std::process::id()));
        let file = settings.join(setting("eth0"));
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::write(&file, "1\n").expect("written");
        let journal = |directory: &str| Journal::at(Path::new(directory), 1, &settings);
        let is_loosened = loosen(&journal("/proc/no/such/directory"), "eth0");
        assert_eq!((is_loosened, fs::read_to_string(&file).expect("there").trim()), (false, "1"));
        let kept = journal(&settings.join("journal").to_string_lossy());
        assert!(loosen(&kept, "eth0"));
        assert_eq!(fs::read_to_string(&file).expect("there"), "2");
        assert!(kept.restore());
        assert_eq!(fs::read_to_string(&file).expect("there"), "1");
        assert!(!loosen(&kept, "gone"));
        fs::remove_dir_all(&settings).expect("removed");
    }
}
