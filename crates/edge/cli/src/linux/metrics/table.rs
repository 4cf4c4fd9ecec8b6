//! All metrics, each declared once: its name, kind, unit, labels and help, and where its values are read.
//!
//! The values of labels are names of devices, and words of this program. None is chosen by a peer, and none names a connection.

use jiff::Timestamp;
use plait::PathState;

use super::snapshot::Snapshot;
use crate::linux::door::REASONS;
use crate::running::{End, Level, PathName, PathSum};

/// One metric.
pub(super) struct Metric {
    /// With its unit at the end, without the `_total` of counters.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Option<&'static str>,
    pub(super) labels: &'static [&'static str],
    /// A sentence without its full stop.
    pub(super) help: &'static str,
    pub(super) samples: fn(&Snapshot) -> Vec<Sample>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Never decreases while the process runs.
    Counter,
    Gauge,
}

/// A value of a metric, with the values of its labels in their order.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    pub(super) labels: Vec<String>,
    pub(super) number: Number,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

impl Metric {
    /// Its name without the unit, which the encoder adds.
    pub(super) fn stem(&self) -> &'static str {
        let without = |unit: &str| self.name.strip_suffix(unit)?.strip_suffix('_');
        self.unit.and_then(without).unwrap_or(self.name)
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Snapshot) -> Vec<Sample>,
) -> Metric {
    Metric { name, kind: Kind::Counter, unit: None, labels, help, samples }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Snapshot) -> Vec<Sample>,
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: None, labels, help, samples }
}

const fn in_unit(unit: &'static str, metric: Metric) -> Metric {
    Metric { unit: Some(unit), ..metric }
}

/// The labels of a path.
const PATH: &[&str] = &["path", "carrier"];

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "plait_build_info",
        &["version", "command"],
        "1, with the version and the command as labels",
        |snapshot| vec![sample([env!("CARGO_PKG_VERSION"), snapshot.kind], 1)],
    ),
    in_unit(
        "seconds",
        gauge("plait_start_time_seconds", &[], "The start of the process in Unix time", |snapshot| {
            let started = snapshot.started.parse::<Timestamp>();
            started.map(|at| Sample::real([], at.as_second() as f64)).into_iter().collect()
        }),
    ),
    gauge("plait_ready", &[], "Whether connections are accepted, or the server has answered", |snapshot| {
        vec![only(snapshot.is_ready.into())]
    }),
    gauge(
        "plait_health_messages",
        &["level"],
        "Messages about the health of the process that are current",
        |snapshot| {
            let of = |(level, name)| {
                sample([name], snapshot.health.iter().filter(|message| message.level == level).count() as u64)
            };
            [(Level::Warning, "warning"), (Level::Error, "error")].map(of).into()
        },
    ),
    gauge("plait_path_up", PATH, "Whether the path has a carrier and an address", |snapshot| {
        snapshot.paths.iter().map(|path| sample(path_labels(path), path.is_up().into())).collect()
    }),
    gauge("plait_path_backup", PATH, "Whether the path is used only while no other path works", |snapshot| {
        snapshot.paths.iter().map(|path| sample(path_labels(path), path.is_backup().into())).collect()
    }),
    gauge("plait_path_subflows_open", PATH, "Subflows that have not ended", |snapshot| {
        let load = &snapshot.survey.load;
        snapshot
            .paths
            .iter()
            .map(|path| {
                let open = load.get(&name_of(path)).map_or(0, |load| load.subflows_open);
                sample(path_labels(path), open)
            })
            .collect()
    }),
    in_unit(
        "seconds",
        gauge(
            "plait_path_rtt_seconds",
            PATH,
            "The smallest smoothed round-trip time of the open subflows",
            |snapshot| {
                let of = |path: &PathState| {
                    let rtt_ms = snapshot.survey.load.get(&name_of(path))?.rtt_ms?;
                    Some(Sample::real(path_labels(path), rtt_ms / 1000.0))
                };
                snapshot.paths.iter().filter_map(of).collect()
            },
        ),
    ),
    counter("plait_path_subflows_opened", PATH, "Subflows since the start", |snapshot| {
        of_paths(snapshot, |sum| sum.subflows)
    }),
    in_unit(
        "bytes",
        counter(
            "plait_path_bytes",
            &["path", "carrier", "direction"],
            "Payload that subflows have sent for the first time, or received in order",
            |snapshot| {
                let both = |(name, sum): (&PathName, &PathSum)| {
                    let of = |(direction, bytes)| sample([name.0.as_str(), &name.1, direction], bytes);
                    [("sent", sum.bytes_sent), ("received", sum.bytes_received)].map(of)
                };
                snapshot.survey.sums.paths.iter().flat_map(both).collect()
            },
        ),
    ),
    in_unit(
        "bytes",
        counter(
            "plait_path_retransmitted_bytes",
            PATH,
            "Payload that a subflow has sent more than once",
            |snapshot| of_paths(snapshot, |sum| sum.bytes_retransmitted),
        ),
    ),
    in_unit(
        "bytes",
        counter(
            "plait_reinjected_bytes",
            PATH,
            "Payload sent on this path after a subflow had sent it on this path or another",
            |snapshot| of_paths(snapshot, |sum| sum.bytes_reinjected),
        ),
    ),
    counter("plait_path_segments_sent", PATH, "Segments sent, as they are on the wire", |snapshot| {
        of_paths(snapshot, |sum| sum.segments_sent)
    }),
    counter("plait_path_segments_lost", PATH, "Segments of ours that were taken for lost", |snapshot| {
        of_paths(snapshot, |sum| sum.segments_lost)
    }),
    counter(
        "plait_forgeries",
        &["path", "carrier", "kind"],
        "Sealed blocks and option tags of the peer that failed verification: an attacker changes packets on this path",
        |snapshot| {
            let both = |(name, sum): (&PathName, &PathSum)| {
                let of = |(kind, count)| sample([name.0.as_str(), &name.1, kind], count);
                [("block", sum.blocks_failed), ("tag", sum.tags_failed)].map(of)
            };
            snapshot.survey.sums.paths.iter().flat_map(both).collect()
        },
    ),
    gauge("plait_connections_open", &[], "Connections now", |snapshot| {
        vec![only(snapshot.survey.open as u64)]
    }),
    gauge(
        "plait_connections_ready",
        &[],
        "Connections that wait for a request, beside the open ones",
        |snapshot| vec![only(snapshot.survey.ready as u64)],
    ),
    counter("plait_connections_opened", &[], "Connections since the start", |snapshot| {
        vec![only(snapshot.survey.opened)]
    }),
    counter("plait_connections_ended", &["reason"], "Connections that have ended", |snapshot| {
        let of = |end: End| sample([end.name()], snapshot.survey.ends.get(&end).copied().unwrap_or_default());
        End::ALL.map(of).into()
    }),
    in_unit(
        "bytes",
        counter(
            "plait_connection_bytes",
            &["direction"],
            "Bytes of programs: those that peers have acknowledged, and those that were read here",
            |snapshot| {
                let sums = &snapshot.survey.sums;
                vec![sample(["sent"], sums.bytes_delivered), sample(["received"], sums.bytes_read)]
            },
        ),
    ),
    counter(
        "plait_connection_events",
        &["event"],
        "What connections have dropped, refused and repaired",
        |snapshot| {
            snapshot.survey.sums.counters.iter().map(|(name, count)| sample([*name], *count)).collect()
        },
    ),
    counter(
        "plait_refused",
        &["reason"],
        "Segments, joins, handshakes and connections of unknown peers that were dropped, refused or displaced",
        |snapshot| {
            let figures = snapshot.totals.iter().filter(|(name, _)| !COOKIES.contains(name));
            figures.map(|(name, count)| sample([name], count)).collect()
        },
    ),
    counter(
        "plait_clients_refused",
        &["reason"],
        "Clients that serve has refused after their handshake",
        |snapshot| {
            let of = |reason| sample([reason], snapshot.refused.get(reason).copied().unwrap_or_default());
            REASONS.map(of).into()
        },
    ),
    counter(
        "plait_cookies",
        &["kind"],
        "SYN/ACKs that were sent without keeping state, and those of them that the peer has answered",
        |snapshot| {
            let figures = snapshot.totals.iter().filter(|(name, _)| COOKIES.contains(name));
            figures.map(|(name, count)| sample([name], count)).collect()
        },
    ),
    gauge("plait_kept", &["what"], "What the stack keeps for connections now", |snapshot| {
        let figures = snapshot.state.iter().filter(|(name, _)| !MEMORY.contains(name));
        figures.map(|(name, count)| sample([name], count)).collect()
    }),
    in_unit(
        "bytes",
        gauge(
            "plait_memory_bytes",
            &["kind"],
            "Memory that connections use, and that with what their peers may still send",
            |snapshot| {
                let figures = snapshot.state.iter().filter(|(name, _)| MEMORY.contains(name));
                figures.map(|(name, bytes)| sample([name.trim_start_matches("memory_")], bytes)).collect()
            },
        ),
    ),
];

/// The totals of the host that are no refusals.
const COOKIES: [&str; 4] =
    ["syn_cookies_sent", "syn_cookies_taken", "join_cookies_sent", "join_cookies_taken"];
/// The figures of the state of the host that are bytes.
const MEMORY: [&str; 2] = ["memory_used", "memory_set_aside"];

impl Sample {
    fn real(labels: impl IntoIterator<Item = String>, number: f64) -> Self {
        Self { labels: labels.into_iter().collect(), number: Number::Real(number) }
    }
}

fn sample<const N: usize>(labels: [impl AsRef<str>; N], number: u64) -> Sample {
    let labels = labels.iter().map(|label| label.as_ref().to_owned()).collect();
    Sample { labels, number: Number::Whole(number) }
}

/// A sample of a metric without labels.
fn only(number: u64) -> Sample {
    sample([] as [&str; 0], number)
}

fn name_of(path: &PathState) -> PathName {
    (path.device().to_owned(), path.carrier().to_string())
}

fn path_labels(path: &PathState) -> [String; 2] {
    let (device, carrier) = name_of(path);
    [device, carrier]
}

/// A sample of each path.
fn of_paths(snapshot: &Snapshot, figure: impl Fn(&PathSum) -> u64) -> Vec<Sample> {
    let of = |(name, sum): (&PathName, &PathSum)| sample([&name.0, &name.1], figure(sum));
    snapshot.survey.sums.paths.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::http::Format;
    use super::*;

    const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/metrics.md"));

    /// The name on the page.
    fn sample_name(metric: &Metric) -> String {
        match metric.kind {
            Kind::Counter => format!("{}_total", metric.name),
            Kind::Gauge => metric.name.to_owned(),
        }
    }

    /// The cells of the rows of a table whose first cell begins like this.
    fn rows(begin: &str) -> Vec<Vec<String>> {
        let rows = DOCUMENT.lines().filter(|line| line.starts_with(&format!("| `{begin}")));
        let cells =
            |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        // Those of the alerts have fewer cells.
        rows.map(cells).filter(|cells: &Vec<String>| cells.len() == 4).collect()
    }

    fn quoted<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
        words.into_iter().map(|word| format!("`{}`", word.as_ref())).collect::<Vec<_>>().join(", ")
    }

    /// A process with one path that has sent, and one that the host does not have any more.
    fn snapshot() -> std::sync::Arc<Snapshot> {
        let mut snapshot =
            Snapshot { kind: "serve", started: "2026-09-02T10:00:00Z".to_owned(), ..Snapshot::default() };
        let name = |device: &str| (device.to_owned(), "udp".to_owned());
        let sum = PathSum { bytes_sent: 7, blocks_failed: 2, ..PathSum::default() };
        snapshot.survey.sums.paths = [(name("wlan0"), sum), (name("a\"\\\nb"), PathSum::default())].into();
        snapshot.survey.sums.counters = plait::ConnectionCounters::default().iter().collect();
        snapshot.into()
    }

    #[test]
    fn the_documented_metrics_are_those_that_there_are() {
        let documented = rows("plait_");
        let declared: Vec<Vec<String>> = METRICS
            .iter()
            .map(|metric| {
                let kind = match metric.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                };
                let name = quoted([sample_name(metric)]);
                vec![name, kind.to_owned(), quoted(metric.labels), metric.help.to_owned()]
            })
            .collect();
        assert_eq!(documented, declared);
    }

    #[test]
    fn the_documented_values_of_labels_are_those_that_there_are() {
        let documented = |label: &str| {
            let rows: Vec<_> =
                DOCUMENT.lines().filter(|line| line.starts_with(&format!("| {label} |"))).collect();
            let [row] = rows[..] else { panic!("{label}: {rows:?}") };
            row.trim_matches('|').split('|').nth(1).expect("two cells").trim().to_owned()
        };
        let snapshot = snapshot();
        let values = |name: &str| {
            let metric = METRICS.iter().find(|metric| metric.name == name).expect(name);
            quoted(
                (metric.samples)(&snapshot)
                    .iter()
                    .map(|sample| sample.labels.last().expect("a label").clone()),
            )
        };
        assert_eq!(
            documented("`reason` of `plait_connections_ended_total`"),
            values("plait_connections_ended")
        );
        assert_eq!(documented("`reason` of `plait_clients_refused_total`"), values("plait_clients_refused"));
        assert_eq!(documented("`reason` of `plait_refused_total`"), values("plait_refused"));
        assert_eq!(documented("`kind` of `plait_cookies_total`"), values("plait_cookies"));
        assert_eq!(documented("`kind` of `plait_memory_bytes`"), values("plait_memory_bytes"));
        assert_eq!(documented("`what`"), values("plait_kept"));
        // They are sorted by the page.
        let sorted = |text: &str| {
            let mut words: Vec<_> = text.split(", ").map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(sorted(&documented("`event`")), sorted(&values("plait_connection_events")));
    }

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut names = BTreeMap::<_, u32>::new();
        for metric in METRICS {
            *names.entry(metric.name).or_default() += 1;
            assert!(metric.name.starts_with("plait_") && !metric.name.ends_with("_total"), "{}", metric.name);
            assert!(
                metric.unit.is_none_or(|unit| metric.name.ends_with(&format!("_{unit}"))),
                "{}",
                metric.name
            );
            assert!(!metric.help.ends_with('.'), "{}", metric.name);
        }
        assert!(names.values().all(|count| *count == 1), "{names:?}");
    }

    #[test]
    fn each_metric_is_on_both_pages_with_its_values() {
        let (open, plain) = (snapshot().page(Format::OpenMetrics), snapshot().page(Format::Prometheus));
        for metric in METRICS {
            assert!(open.contains(&format!("# TYPE {} ", metric.name)), "{}\n{open}", metric.name);
            assert!(plain.contains(&format!("# TYPE {} ", sample_name(metric))), "{}\n{plain}", metric.name);
        }
        let line = "plait_path_bytes_total{path=\"wlan0\",carrier=\"udp\",direction=\"sent\"} 7\n";
        assert!(open.contains("# UNIT plait_path_bytes bytes\n") && open.ends_with("# EOF\n"), "{open}");
        for page in [&open, &plain] {
            assert!(page.contains(line), "{page}");
            assert!(
                page.contains("plait_forgeries_total{path=\"wlan0\",carrier=\"udp\",kind=\"block\"} 2\n"),
                "{page}"
            );
            assert!(page.contains("plait_start_time_seconds 1788343200"), "{page}");
            assert!(page.contains("path=\"a\\\"\\\\\\nb\""), "a name cannot end its label: {page}");
        }
    }

    /// The words of an expression of Prometheus that begin like a metric.
    fn metrics_in(expression: &str) -> Vec<&str> {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("plait_")).collect()
    }

    #[test]
    fn the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_there_are() {
        const DASHBOARD: &str =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/grafana/plait.json"));
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
        let mut expressions: Vec<_> =
            targets.map(|target| target["expr"].as_str().expect("an expression")).collect();
        assert!(expressions.len() >= panels.len());
        let alerts = DOCUMENT.split("## Alerts").nth(1).expect("a section");
        let alerts =
            alerts.lines().filter(|line| line.starts_with("| `plait_") || line.starts_with("| `rate("));
        expressions.extend(alerts.map(|line| line.split('`').nth(1).expect("an expression")));
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        expressions.extend(variables.iter().filter_map(|variable| variable["query"].as_str()));
        for expression in &expressions {
            for name in metrics_in(expression) {
                let metric = METRICS.iter().find(|metric| sample_name(metric) == name);
                let metric = metric.unwrap_or_else(|| panic!("{name} in {expression}"));
                let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
                for label in grouped.flat_map(|labels| labels.split(", ")) {
                    assert!(metric.labels.contains(&label), "{label} in {expression}");
                }
            }
        }
        assert_eq!(metrics_in("rate(plait_x_total{a=\"b\"}[5m]) + up"), ["plait_x_total"]);
    }
}
