//! Questions of the validator, asked over one device.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

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

/// A nameserver, asked over one device alone.
#[derive(Clone)]
pub(super) struct OverDevice {
    pub(super) device: String,
    pub(super) server: SocketAddr,
}

impl OverDevice {
    async fn ask(self, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let (mut query, _) = request.into_parts();
        query.metadata.id = (OsRandom::new()?.next_u32() >> 16) as u16;
        query.metadata.recursion_desired = true;
        // The nameserver need not check what is checked here (RFC 6840, section 5.9): its anchors may be others.
        query.metadata.checking_disabled = true;
        let edns = query.edns.get_or_insert_with(Edns::new);
        edns.set_max_payload(PAYLOAD);
        let query = Message::from_octets(query.to_vec()?).map_err(io::Error::other)?;
        let answer = exchange(&self.device, self.server, &query).await?;
        Ok(DnsResponse::from_buffer(answer.into_octets())?)
    }
}

impl DnsHandle for OverDevice {
    type Response = Pin<Box<dyn Stream<Item = Result<DnsResponse, NetError>> + Send>>;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        Box::pin(stream::once(self.clone().ask(request)))
    }
}
