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
use hickory_net::proto::dnssec::Algorithm;
use hickory_net::proto::dnssec::rdata::DNSSECRData;
use hickory_net::proto::op::{DnsRequest, DnsResponse, Edns};
use hickory_net::proto::rr::{RData, Record};
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
        Ok(without_sha1(DnsResponse::from_buffer(answer.into_octets())?))
    }
}

/// Removes signatures with SHA-1, which the validator accepts: with a collision, the signature of a harmless record is one of another record
/// of the zone (RFC 9905).
#[allow(deprecated, reason = "the library says the same of SHA-1")]
fn without_sha1(mut answer: DnsResponse) -> DnsResponse {
    let is_kept = |record: &Record| {
        let RData::DNSSEC(DNSSECRData::RRSIG(signature)) = &record.data else { return true };
        !matches!(signature.input().algorithm, Algorithm::RSASHA1 | Algorithm::RSASHA1NSEC3SHA1)
    };
    answer.answers.retain(is_kept);
    answer.authorities.retain(is_kept);
    answer.additionals.retain(is_kept);
    answer
}

impl DnsHandle for OverDevice {
    type Response = Pin<Box<dyn Stream<Item = Result<DnsResponse, NetError>> + Send>>;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        Box::pin(stream::once(self.clone().ask(request)))
    }
}

#[cfg(test)]
mod tests {
    use hickory_net::proto::dnssec::rdata::{RRSIG, SigInput};
    use hickory_net::proto::op::{Message, OpCode};
    use hickory_net::proto::rr::{Name, RecordType, SerialNumber};

    use super::*;

    #[test]
    #[allow(deprecated, reason = "the library says the same of SHA-1")]
    fn signatures_with_sha_1_are_as_if_absent() {
        let signature = |algorithm| {
            let input = SigInput {
                type_covered: RecordType::TLSA,
                algorithm,
                num_labels: 0,
                original_ttl: 0,
                sig_expiration: SerialNumber::new(1),
                sig_inception: SerialNumber::new(0),
                key_tag: 0,
                signer_name: Name::root(),
            };
            let signature = DNSSECRData::RRSIG(RRSIG::from_sig(input, vec![0; 64]));
            Record::from_rdata(Name::root(), 0, RData::DNSSEC(signature))
        };
        let mut answer = Message::response(0, OpCode::Query);
        let kept = [Algorithm::ED25519, Algorithm::RSASHA256].map(signature);
        let weak = [Algorithm::RSASHA1, Algorithm::RSASHA1NSEC3SHA1].map(signature);
        answer.add_answers(weak.into_iter().chain(kept.clone()));
        let answer = without_sha1(DnsResponse::from_message(answer).expect("well-formed"));
        assert_eq!(answer.answers, kept);
    }
}
