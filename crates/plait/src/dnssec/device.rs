//! Questions of the validator, asked over one device.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::plait_host::OsRandom;
use domain::base::Message;
use futures_util::stream::{self, Stream};
use hickory_net::NetError;
use hickory_net::proto::op::{DnsRequest, DnsResponse, Edns};
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::DnsHandle;
use plait_base::Random;

use crate::names::query::exchange;

/// Largest answer over UDP, which every path carries in one packet; longer ones come over TCP.
const PAYLOAD: u16 = 1232;

/// Questions to one nameserver. A chain of zones takes two for each of them, and the proof that a name has no record a few more. Without a limit the
/// nameserver has signatures of ever more zones verified, each of them at the cost of more questions.
pub(super) const MOST_QUESTIONS: usize = 64;

/// Records of one answer. The nameservers of a large zone with their addresses and signatures are about forty. Each signature is verified
/// with each key of the same tag, so the work grows faster than the answer.
pub(super) const MOST_RECORDS: u32 = 64;

/// A nameserver, asked over one device alone.
#[derive(Clone)]
pub(super) struct OverDevice {
    device: String,
    server: SocketAddr,
    /// Questions so far, those of all clones together: the validator asks by clones.
    questions: Arc<AtomicUsize>,
}

impl OverDevice {
    pub(super) fn new(device: String, server: SocketAddr) -> Self {
        Self { device, server, questions: Arc::default() }
    }

    async fn ask(self, request: DnsRequest) -> Result<DnsResponse, NetError> {
        if self.questions.fetch_add(1, Ordering::Relaxed) >= MOST_QUESTIONS {
            return Err(NetError::from("too many questions are necessary"));
        }
        let (mut query, _) = request.into_parts();
        query.metadata.id = (OsRandom::new()?.next_u32() >> 16) as u16;
        query.metadata.recursion_desired = true;
        // The nameserver need not check what is checked here (RFC 6840, section 5.9): its anchors may be others.
        query.metadata.checking_disabled = true;
        let edns = query.edns.get_or_insert_with(Edns::new);
        edns.set_max_payload(PAYLOAD);
        let query = Message::from_octets(query.to_vec()?).map_err(io::Error::other)?;
        let answer = exchange(&self.device, self.server, &query).await?;
        let counts = answer.header_counts();
        let records = [counts.ancount(), counts.nscount(), counts.arcount()].map(u32::from);
        if records.iter().sum::<u32>() > MOST_RECORDS {
            return Err(NetError::from("an answer has too many records"));
        }
        Ok(DnsResponse::from_buffer(answer.into_octets())?)
    }
}
