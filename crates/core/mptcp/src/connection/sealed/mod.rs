//! A sealed connection: its protection says what each handshake message, block, option and record is worth, and here that is
//! acted upon.
//!
//! Bytes of a subflow are the handshake's or blocks ([`inbound`]); a block is opened, here or by a job, and put in order
//! ([`unsealing`]); records are acted upon ([`records`]); what goes out is cut for a subflow ([`outbound`]), and what was corrupted on
//! the way is sent again ([`repair`]). The first segment of a join may bring blocks, too ([`syn_data`]). Which subflows live is asked and
//! told under the same keys ([`life`]). Datagrams go beside the stream ([`datagrams`]).

mod claim;
mod datagram_arrivals;
mod datagrams;
mod handshake;
mod inbound;
mod life;
mod mixing;
mod outbound;
mod records;
mod repair;
mod syn_data;
mod unsealing;
