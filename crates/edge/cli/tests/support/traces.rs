//! All that `plait` may change in the network of a host.

use std::fs;

use plait_netns::Namespace;

/// Rules, routes, devices and settings.
pub(crate) fn traces(host: &Namespace) -> String {
    let mut traces = String::new();
    for words in ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "-br link"] {
        traces += &host.ip(words).expect("ip works");
    }
    traces += &host.run("nft", "list ruleset").expect("nft works");
    let settings = || {
        let mut text = String::new();
        for family in ["ipv4", "ipv6"] {
            let mut devices: Vec<_> =
                fs::read_dir(format!("/proc/sys/net/{family}/conf")).expect("there").flatten().collect();
            devices.sort_by_key(fs::DirEntry::file_name);
            for device in devices {
                for name in ["forwarding", "force_forwarding", "accept_ra", "rp_filter", "src_valid_mark"] {
                    let file = device.path().join(name);
                    let value = fs::read_to_string(&file).unwrap_or_default();
                    text += &format!("{} {}\n", file.display(), value.trim());
                }
            }
        }
        text
    };
    traces + &host.enter(settings).expect("entered")
}
