//! MPTCPsec: blocks, tags and keys of a sealed connection.
//!
//! One DSS mapping carries one **block**: `H || C || T_d || T_o`. The AEAD runs once per block, when the
//! [`Sealer`] turns plain bytes into a [`SealedBlock`]; its nonce is the data sequence number, which the
//! sealer owns and never gives out twice. What may change from one transmission to the next (the subflow, its
//! sequence number, the Data-ACK) is covered by the **option tag** `T_o`, a keyed hash without a nonce, so a
//! reinjection costs a hash of some 50 bytes and no encryption. The [`Opener`] checks `T_o` first, decrypts
//! second, and takes blocks in any order.
//!
//! Everything comes from one [`MasterSecret`], which a handshake delivers:
//!
//! ```text
//! MasterSecret ──► ConnectionSecrets ──┬─► ConnectionIdentity  tokens, IDSNs, session id
//!                                      ├─► Sealer              our direction: generations of block and tag keys, joins, fast close
//!                                      └─► Opener              theirs
//! ```
//!
//! Source: Jadin et al., "Securing MultiPath TCP", section III-C, with the departures that plait's wire format
//! explains: a MAC in place of the second AEAD call, keys per direction and subflow, key updates, and control
//! records inside the stream.
//!
//! **Wiping.** Secrets, keys and nonce start values are cleared when they are dropped: a generation when all of it is
//! acknowledged, everything when the connection ends. Two things cannot be: working copies that HKDF and BLAKE3 leave
//! on the stack until other calls overwrite them, and the plain text, which belongs to the application.
//!
//! Nothing here sends, waits, or knows the time: `now` is an argument where the age of a key matters.

mod ack;
mod aead;
mod block;
mod check;
mod datagram;
mod generation;
mod hkdf;
mod identity;
mod limits;
mod opener;
mod option_tag;
mod path_key;
mod record;
mod record_fields;
mod replay;
mod report;
mod schedule;
mod sealer;
mod secret;
mod session_ticket;
mod signals;
mod suite;

#[cfg(test)]
mod life_tests;
#[cfg(test)]
mod nonce_tests;
#[cfg(test)]
mod wycheproof_tests;

pub use ack::{ACK_OPTION_LEN, AckContext, AckTag};
pub use aead::BlockKey;
pub use block::{BLOCK_OVERHEAD, BlockBuffer, Kind, MAX_PLAIN, Payload, SealedBlock};
pub use check::{CHECK_OPTION_LEN, Check, CheckTag};
pub use datagram::{
    DATAGRAM_OVERHEAD, DatagramError, DatagramHead, MAX_FLOW, MAX_PIECES, OpenedDatagram, Piece,
};
pub use hkdf::{Hkdf, OutputTooLong};
pub use identity::{ConnectionIdentity, JoinHmacs, JoinTranscript};
pub use limits::KeyLimits;
pub use opener::{OpenError, OpenJob, Opened, Opener};
pub use option_tag::{OptionContext, OptionKey, ProtectedOptions, SubflowTag};
pub use path_key::{
    ANSWER_LEN, Exchange, OFFER_LEN, PathKeyError, PathKeys, PathNumber, PathOffer, Share, ShareLog, Speaker,
    exchange_of,
};
pub use record::{
    GoneReason, MAX_DESTINATION, MAX_RECORDS, OPENING_LEN, Record, RecordError, Records, RefusalReason, Seen,
};
pub use report::{REPORT_OPTION_LEN, Report, ReportTag};
pub use schedule::{ConnectionSecrets, Role};
pub use sealer::{KeyUsedUp, SealJob, Sealer, UpdateRefused};
pub use secret::{ExporterSecret, JoinSecret, MasterSecret, MixSecret, ResumeSecret};
pub use session_ticket::{MAX_TICKET, SessionTicket};
pub use signals::JoinKeys;
pub use suite::Suite;
