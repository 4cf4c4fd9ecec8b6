//! The devices that the rules of a host select, as they come, go, and change their names.
//!
//! Each selected device has a slot, and each slot a path over each carrier. A device that comes back gets its slot back. A device that has
//! another name now keeps its slot, and its connections.

use plait_base::{Instant, LogLimit};

use crate::error::Error;
use crate::log::warn;
use crate::path::PathSpec;
use crate::path_rule::PathRule;
use crate::ranges::MAX_PATHS;
use crate::sys::Candidate;

/// The rules of a host and the slots of the devices.
#[derive(Debug)]
pub(crate) struct Selection {
    rules: Vec<PathRule>,
    slots: Vec<Slot>,
    /// Limits the lines about devices that find no free slot.
    full: LogLimit,
}

/// The slot of a device.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    pub(crate) spec: PathSpec,
    pub(crate) state: SlotState,
    /// The rule that has selected the device.
    rule: PathRule,
    /// The kernel's number of the device, as long as it is there.
    index: Option<u32>,
}

/// The use of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    /// A rule selects the device. A device that a rule names need not be there yet.
    Selected,
    /// The device is not there, or has no default route. The slot is kept for it.
    Away,
    /// No rule is for the device any more.
    Removed,
}

/// A slot that has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// Its number.
    pub(crate) slot: usize,
    /// Whether what ran over its paths has ended: the device is another one, or was plugged in again, or no rule is for it any more.
    pub(crate) ends: bool,
}

/// A device that a rule selects now.
struct Wanted<'a> {
    device: &'a str,
    rule: &'a PathRule,
    index: Option<u32>,
}

impl Selection {
    /// Returns the selection by these rules before the first look at the devices.
    ///
    /// # Errors
    /// Two rules are for the same devices.
    pub(crate) fn new(rules: Vec<PathRule>) -> Result<Self, Error> {
        let mut selection = Self { rules: Vec::new(), slots: Vec::new(), full: LogLimit::default() };
        rules.into_iter().try_for_each(|rule| selection.add(rule))?;
        Ok(selection)
    }

    /// The rules.
    pub(crate) fn rules(&self) -> &[PathRule] {
        &self.rules
    }

    /// The slots. A slot keeps its number.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The paths of the slots that a rule is for, in order, each device once.
    pub(crate) fn specs(&self) -> Vec<PathSpec> {
        let mut specs: Vec<PathSpec> = Vec::new();
        for Slot { spec, .. } in self.slots.iter().filter(|slot| slot.state != SlotState::Removed) {
            if !specs.iter().any(|other| other.device() == spec.device()) {
                specs.push(spec.clone());
            }
        }
        specs
    }

    /// Adds a rule. It has effect with the next [`Selection::follow`], as all changes.
    ///
    /// # Errors
    /// There is a rule for these devices.
    pub(crate) fn add(&mut self, rule: PathRule) -> Result<(), Error> {
        if self.rules.iter().any(|other| other.has_devices_of(&rule)) {
            return Err(Error::DuplicatePath { name: rule.devices() });
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Changes the use of the devices of a rule, or of one device that another rule has selected.
    ///
    /// # Errors
    /// There is neither.
    pub(crate) fn change(&mut self, rule: PathRule) -> Result<(), Error> {
        let is_known =
            |slot: &Slot| slot.state != SlotState::Removed && rule.name() == Some(slot.spec.device());
        if let Some(known) = self.rules.iter_mut().find(|known| known.has_devices_of(&rule)) {
            *known = rule;
        } else if self.slots.iter().any(is_known) {
            self.rules.push(rule);
        } else {
            return Err(Error::UnknownPath { name: rule.devices() });
        }
        Ok(())
    }

    /// Removes the rule for these devices.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn remove(&mut self, devices: &PathRule) -> Result<(), Error> {
        let before = self.rules.len();
        self.rules.retain(|rule| !rule.has_devices_of(devices));
        if self.rules.len() == before {
            return Err(Error::NoSuchRule { devices: devices.devices() });
        }
        Ok(())
    }

    /// Applies the rules to the devices that are there. Returns the slots that have changed.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        devices: &[Candidate<'_>],
        default: &[String],
    ) -> Vec<Change> {
        let Self { rules, slots, full } = self;
        let wanted = wanted(rules, devices, default);
        let before = slots.clone();
        let mut assigned = vec![false; slots.len()];
        let mut left_out = 0;
        for Wanted { device, rule, index } in &wanted {
            // A device without a valid name cannot be used: its name would be a word for other programs.
            let Ok(spec) = rule.path(device) else { continue };
            let slot = Slot { spec, state: SlotState::Selected, rule: (*rule).clone(), index: *index };
            match place_of(&slot, slots, &assigned, &wanted) {
                Some(place) => {
                    slots[place] = slot;
                    assigned[place] = true;
                }
                None if slots.len() < MAX_PATHS => {
                    slots.push(slot);
                    assigned.push(true);
                }
                None => left_out += 1,
            }
        }
        for (slot, _) in slots.iter_mut().zip(assigned).filter(|(_, is_assigned)| !is_assigned) {
            let has_rule = rules.iter().any(|rule| rule.has_devices_of(&slot.rule));
            slot.state = if has_rule { SlotState::Away } else { SlotState::Removed };
            slot.index = None;
        }
        if left_out > 0
            && let Some(others) = full.note(now, 1)
        {
            warn!(left_out, others, "more than {MAX_PATHS} devices are selected: not all are paths");
        }
        let changes = slots.iter().enumerate().filter(|(number, slot)| before.get(*number) != Some(slot));
        let change = |(slot, now): (usize, &Slot)| Change { slot, ends: ends(before.get(slot), now) };
        changes.map(change).collect()
    }
}

/// The rules for the single devices that these rules select among these devices, each by its name.
///
/// # Errors
/// Two rules are for the same devices.
pub(crate) fn present_in(
    rules: Vec<PathRule>,
    devices: &[Candidate<'_>],
    default: &[String],
) -> Result<Vec<PathRule>, Error> {
    let mut selection = Selection::new(rules)?;
    selection.follow(Instant::from_millis(0), devices, default);
    selection.slots.iter().map(|slot| slot.rule.for_device(slot.spec.device())).collect()
}

/// Whether what ran over the paths of a slot before ends.
fn ends(before: Option<&Slot>, now: &Slot) -> bool {
    let Some(before) = before else { return false };
    let is_replaced = before.index.is_some() && now.index.is_some() && before.index != now.index;
    let is_other = before.index != now.index && before.spec.device() != now.spec.device();
    is_replaced || is_other || now.state == SlotState::Removed
}

/// The devices that these rules select, in the order of the rules, each device once by the rule of the highest precedence.
fn wanted<'a>(rules: &'a [PathRule], devices: &'a [Candidate<'_>], default: &'a [String]) -> Vec<Wanted<'a>> {
    let has_default_route = |name: &str| default.iter().any(|device| device == name);
    let selects =
        |rule: &PathRule, device: &Candidate<'_>| rule.selects(device, has_default_route(device.name));
    let strongest = |device: &Candidate<'_>| {
        let those = rules.iter().rev().filter(|rule| selects(rule, device));
        // The first of equal ones: the last maximum of the reversed order.
        those.max_by_key(|rule| rule.precedence(device.name))
    };
    let mut wanted: Vec<Wanted<'a>> = Vec::new();
    for rule in rules {
        let mut of_rule: Vec<_> = devices.iter().filter(|device| selects(rule, device)).collect();
        if rule.is_for_one_device() {
            of_rule.sort_by_key(|device| (!device.has_address(), device.index));
            of_rule.truncate(1);
        }
        of_rule.retain(|device| strongest(device).is_some_and(|strongest| std::ptr::eq(strongest, rule)));
        // The best default route first.
        of_rule.sort_by_key(|device| default.iter().position(|name| name == device.name));
        wanted.extend(of_rule.into_iter().map(|device| Wanted {
            device: device.name,
            rule,
            index: Some(device.index),
        }));
        let is_there =
            |name: &str| devices.iter().any(|device| rule.selects(device, false) || device.name == name);
        if let Some(name) = rule.name().filter(|name| !is_there(name)) {
            wanted.push(Wanted { device: name, rule, index: None });
        }
    }
    wanted
}

/// The slot for a device: its own, under this name or another; that of a device which the same rule has selected, and which is gone; or,
/// if there is no room for a new one, an unused one.
fn place_of(slot: &Slot, slots: &[Slot], assigned: &[bool], wanted: &[Wanted<'_>]) -> Option<usize> {
    let free = || (0..slots.len()).filter(|place| !assigned[*place]);
    let is_wanted = |other: &Slot| wanted.iter().any(|wanted| wanted.device == other.spec.device());
    let is_own = |place: &usize| slots[*place].spec.device() == slot.spec.device();
    let has_index = |place: &usize| slot.index.is_some() && slots[*place].index == slot.index;
    let is_of_rule = |place: &usize| {
        slot.rule.is_for_one_device()
            && slots[*place].rule.has_devices_of(&slot.rule)
            && !is_wanted(&slots[*place])
    };
    let is_unused = |place: &usize| slots.len() >= MAX_PATHS && !is_wanted(&slots[*place]);
    free()
        .find(has_index)
        .or_else(|| free().find(is_own))
        .or_else(|| free().find(is_of_rule))
        .or_else(|| free().find(is_unused))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    use plait_mptcp::PathClass;

    const NOW: Instant = Instant::from_millis(0);

    fn selection(rules: &[&str]) -> Selection {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Selection::new(rules).expect("all differ")
    }

    /// Follows devices with these names and numbers.
    fn follow(selection: &mut Selection, devices: &[(&str, u32)], default: &[&str]) -> Vec<usize> {
        let candidate = |&(name, index): &(&'static str, u32)| Candidate {
            name,
            other_names: &[],
            link_addresses: vec![if index % 10 == 7 { "02:00:00:00:00:07" } else { "02:00:00:00:00:01" }],
            addresses: Vec::new(),
            index,
            is_loopback: name == "lo",
        };
        let devices: Vec<(&'static str, u32)> =
            devices.iter().map(|(name, index)| (&*(*name).to_owned().leak(), *index)).collect();
        let default: Vec<_> = default.iter().map(|name| (*name).to_owned()).collect();
        let changes = selection.follow(NOW, &devices.iter().map(candidate).collect::<Vec<_>>(), &default);
        changes.into_iter().map(|change| change.slot).collect()
    }

    /// The slots: a device in brackets is away, a removed one is a dash.
    fn shown(selection: &Selection) -> String {
        let shown = |slot: &Slot| match slot.state {
            SlotState::Selected => slot.spec.device().to_owned(),
            SlotState::Away => format!("({})", slot.spec.device()),
            SlotState::Removed => "-".to_owned(),
        };
        selection.slots().iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_device_with_a_name_has_a_slot_before_it_is_there_and_one_of_a_pattern_has_not() {
        let mut paths = selection(&["wan1", "usb*=untrusted"]);
        assert_eq!(follow(&mut paths, &[("lo", 1), ("wan9", 2)], &["wan9"]), [0]);
        assert_eq!(shown(&paths), "wan1");
        assert_eq!(follow(&mut paths, &[("usb0", 3), ("wan1", 4)], &[]), [0, 1]);
        assert_eq!(shown(&paths), "wan1 usb0");
        assert_eq!(paths.slots()[1].spec.class(), PathClass::Untrusted);
        assert_eq!(follow(&mut paths, &[("usb0", 3), ("wan1", 4)], &[]), [0; 0]);
        assert_eq!(follow(&mut paths, &[("wan1", 4)], &[]), [1]);
        assert_eq!(shown(&paths), "wan1 (usb0)");
        follow(&mut paths, &[("usb1", 5), ("usb0", 6), ("wan1", 4)], &[]);
        assert_eq!(shown(&paths), "wan1 usb0 usb1", "a device that comes back has its slot");
    }

    #[test]
    fn a_renamed_device_keeps_its_slot_if_a_rule_still_selects_it() {
        let mut paths = selection(&["mac:02:00:00:00:00:07", "usb*", "wan1"]);
        follow(&mut paths, &[("wwan0", 7), ("usb0", 3), ("wan1", 4)], &[]);
        assert_eq!(shown(&paths), "wwan0 usb0 wan1");
        follow(&mut paths, &[("wwan1", 7), ("usb5", 3), ("wan2", 4)], &[]);
        assert_eq!(shown(&paths), "wwan1 usb5 wan1", "wan2 is not selected, and wan1 is waited for");
        assert_eq!(follow(&mut paths, &[("wan2", 4)], &[]), [0, 1]);
        assert_eq!(shown(&paths), "(wwan1) (usb5) wan1");
        follow(&mut paths, &[("wwan9", 7), ("usb5", 9)], &[]);
        assert_eq!(shown(&paths), "wwan9 usb5 wan1", "the modem is plugged in again");
    }

    #[test]
    fn default_routes_are_followed_besides_devices_with_rules_of_their_own() {
        let mut paths = selection(&["default", "docker*=never"]);
        let all = [("lo", 1), ("eth0", 2), ("wlan0", 3), ("docker0", 4)];
        follow(&mut paths, &all, &["wlan0", "eth0", "docker0"]);
        assert_eq!(shown(&paths), "wlan0 eth0 docker0");
        assert_eq!(paths.slots()[2].spec.class(), PathClass::Never);
        follow(&mut paths, &all, &["wlan0"]);
        assert_eq!(shown(&paths), "wlan0 (eth0) docker0");
    }

    #[test]
    fn the_most_specific_rule_counts_wherever_it_stands() {
        let mut paths = selection(&["default", "eth*=never", "eth0=backup"]);
        follow(&mut paths, &[("eth0", 2), ("eth1", 3)], &["eth0", "eth1"]);
        let specs: Vec<_> =
            paths.specs().iter().map(|spec| (spec.device().to_owned(), spec.class())).collect();
        assert_eq!(specs, [("eth1".to_owned(), PathClass::Never), ("eth0".to_owned(), PathClass::Trusted)]);
        assert!(paths.specs()[1].is_backup());
    }

    #[test]
    fn a_link_address_selects_one_device_and_not_its_vlans_and_its_name_counts_more() {
        let mut paths = selection(&["mac:02:00:00:00:00:07"]);
        let all = [("eth0.20", 17), ("eth0", 7), ("eth1", 8)];
        follow(&mut paths, &all, &[]);
        assert_eq!(shown(&paths), "eth0");
        paths.change("eth0=never".parse().expect("a rule")).expect("it is a path");
        follow(&mut paths, &all, &[]);
        assert_eq!(shown(&paths), "eth0");
        assert_eq!(paths.specs()[0].class(), PathClass::Never);
    }

    #[test]
    fn rules_are_added_changed_and_removed_while_a_host_runs() {
        let mut paths = selection(&["usb*"]);
        let all = [("usb0", 2), ("eth0", 3)];
        follow(&mut paths, &all, &[]);
        let rule = |text: &str| text.parse::<PathRule>().expect("a rule");
        assert!(matches!(paths.add(rule("usb*=never")), Err(Error::DuplicatePath { .. })));
        assert!(matches!(paths.change(rule("eth0")), Err(Error::UnknownPath { .. })));
        paths.add(rule("eth0=untrusted")).expect("new");
        paths.change(rule("usb0=never")).expect("one device of the pattern");
        follow(&mut paths, &all, &[]);
        assert_eq!(shown(&paths), "usb0 eth0");
        assert_eq!(
            paths.specs().iter().map(PathSpec::class).collect::<Vec<_>>(),
            [PathClass::Never, PathClass::Untrusted]
        );
        paths.remove(&rule("eth0")).expect("it is there");
        assert!(matches!(paths.remove(&rule("eth0")), Err(Error::NoSuchRule { .. })));
        follow(&mut paths, &all, &[]);
        assert_eq!(shown(&paths), "usb0 -");
        paths.add(rule("eth0")).expect("new again");
        follow(&mut paths, &all, &[]);
        assert_eq!(shown(&paths), "usb0 eth0");
    }

    #[test]
    fn devices_that_come_and_go_under_new_names_use_no_more_slots_than_there_are() {
        let mut paths = selection(&["wan1", "veth*"]);
        for round in 0..300 {
            let name = format!("veth{round}");
            follow(&mut paths, &[("wan1", 1), (&name, 10 + round)], &[]);
            assert!(
                paths
                    .slots()
                    .iter()
                    .any(|slot| slot.spec.device() == name && slot.state == SlotState::Selected)
            );
        }
        assert_eq!(paths.slots().len(), MAX_PATHS);
        assert_eq!(paths.slots()[0].spec.device(), "wan1");
        let names: Vec<_> = (0..70).map(|number| format!("veth{number}")).collect();
        let devices: Vec<_> = names.iter().map(String::as_str).zip(400..).collect();
        follow(&mut paths, &devices, &[]);
        assert_eq!(paths.slots().len(), MAX_PATHS);
        assert_eq!(paths.slots()[0].spec.device(), "wan1", "a device with a name is waited for");
    }
}
