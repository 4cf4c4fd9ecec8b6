//! The addresses and routes of this machine, to notice that they change.

use std::fs;

/// What the kernel and the resolver know of the network: two values differ if an address, a route or a nameserver has changed.
pub(crate) fn network() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let routes: Vec<String> = read("/proc/net/ipv6_route").lines().map(without_counters).collect();
    [
        read("/proc/net/fib_trie"),
        read("/proc/net/route"),
        read("/proc/net/if_inet6"),
        routes.join("\n"),
        read("/etc/resolv.conf"),
    ]
    .concat()
}

/// A line of `/proc/net/ipv6_route` without its sixth and seventh field, which count users.
fn without_counters(line: &str) -> String {
    let fields = line.split_whitespace().enumerate().filter(|(number, _)| !(6..8).contains(number));
    fields.map(|(_, field)| field).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_a_route_is_no_change() {
        let line =
            |counters: &str, device: &str| format!("fe80 40 00 00 00 00000100 {counters} 00000001 {device}");
        assert_eq!(
            without_counters(&line("00000001 00000000", "eth0")),
            without_counters(&line("00000003 00000007", "eth0"))
        );
        assert_ne!(
            without_counters(&line("00000001 00000000", "eth0")),
            without_counters(&line("00000001 00000000", "eth1"))
        );
    }
}
