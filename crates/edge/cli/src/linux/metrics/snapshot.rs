//! The counters of this process at one moment, as a page.

use std::collections::BTreeMap;
use std::fmt;

use plait::{HostState, HostTotals, PathState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::http::Format;
use super::table::{Kind, METRICS, Metric, Number};
use crate::linux::control::{self, Subject};
use crate::running::{Message, Survey};

/// What the metrics are read from.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) kind: &'static str,
    /// The start of the process, in RFC 3339.
    pub(super) started: String,
    pub(super) is_ready: bool,
    pub(super) survey: Survey,
    pub(super) paths: Vec<PathState>,
    pub(super) totals: HostTotals,
    pub(super) state: HostState,
    pub(super) health: Vec<Message>,
    /// Refused clients by reason.
    pub(super) refused: BTreeMap<&'static str, u64>,
}

impl Snapshot {
    pub(super) fn take(subject: &Subject) -> Self {
        let Subject { running, control, host } = subject;
        let host = host.upgrade();
        Self {
            kind: running.kind(),
            started: running.started().to_owned(),
            is_ready: running.is_ready() && !running.is_stopping() && !running.is_replaced(),
            survey: running.survey(|_, _| {}),
            paths: control.paths(),
            totals: host.as_ref().map(|host| host.totals()).unwrap_or_default(),
            state: host.as_ref().map(|host| host.state()).unwrap_or_default(),
            refused: running.clients().refused(),
            health: control::health(running, &control::paths(control)),
        }
    }

    /// All metrics in this format.
    pub(super) fn page(self: &std::sync::Arc<Self>, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut page = String::new();
        let written = match format {
            Format::OpenMetrics => text::encode(&mut page, &registry),
            Format::Prometheus => prometheus_text::encode(&mut page, &registry),
        };
        written.expect("a string takes everything");
        page
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        METRICS.iter().try_for_each(|metric| metric.encode(self, &mut encoder))
    }
}

impl Metric {
    fn encode(&self, snapshot: &Snapshot, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let unit = self.unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let help = format!("{}.", self.help);
        let mut family = encoder.encode_descriptor(self.stem(), &help, unit.as_ref(), kind)?;
        for sample in (self.samples)(snapshot) {
            let labels: Vec<_> = self.labels.iter().copied().zip(sample.labels).collect();
            let mut encoder = family.encode_family(&labels)?;
            match (self.kind, sample.number) {
                (Kind::Counter, Number::Whole(count)) => {
                    encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
                (Kind::Counter, Number::Real(count)) => {
                    encoder.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
                }
                (Kind::Gauge, Number::Whole(value)) => encoder.encode_gauge(&value)?,
                (Kind::Gauge, Number::Real(value)) => encoder.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}
