//! The page `docs/extending.md` against the source tree, and its example of a metric.

#![allow(clippy::disallowed_methods, reason = "the kernel has files, sockets and a clock")]

use std::net::UdpSocket;
use std::path::Path as FilePath;
use std::time::Duration;

use plait::{Carriers, Host, Path, Service};

const PAGE: &str = include_str!("../../../../docs/extending.md");

/// Most files of an extension.
const MOST: usize = 6;

#[test]
fn each_extension_changes_at_most_six_files_and_all_of_them_exist() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let sections: Vec<&str> = PAGE.split("\n## ").skip(1).collect();
    assert_eq!(sections.len(), 5);
    for section in sections {
        let title = section.lines().next().unwrap_or_default();
        let is_item = |line: &&str| line.starts_with(|first: char| first.is_ascii_digit());
        let files: Vec<&str> =
            section.lines().filter(is_item).filter_map(|line| line.split('`').nth(1)).collect();
        assert!((1..=MOST).contains(&files.len()), "{title}: {} files", files.len());
        for file in files {
            assert!(root.join(file).is_file(), "{title}: {file} is missing");
        }
    }
}

#[tokio::test]
async fn a_metric_is_read_by_its_name() {
    let path: Path = "lo".parse().expect("a device");
    let host = Host::builder().carriers(Carriers::Udp).path(path).start().expect("nothing but sockets");
    let totals = host.totals();
    for name in ["syn_cookies_sent", "malformed"] {
        assert!(totals.iter().any(|figure| figure == (name, 0)), "{name} in {totals:?}");
    }
    let mut port = 30_000 + (std::process::id() % 10_000) as u16;
    let _listener = loop {
        match host.listen(port, Service::plain()).await {
            Ok(listener) => break listener,
            Err(_) => port += 1,
        }
    };
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    stranger.send_to(b"no segment", ("127.0.0.1", port)).expect("sent");
    let counted = async {
        while host.totals().malformed != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counted).await.expect("within a minute");
}
