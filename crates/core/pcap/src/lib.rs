//! Packet captures.
//!
//! [`Writer`] writes pcapng (draft-ietf-opsawg-pcapng) with nanosecond timestamps. The interfaces are named at the start, one for each
//! path. `Reader`, of the feature `read`, reads pcapng and the older pcap, in any byte order and resolution. Neither parses the packets.
//!
//! ```
//! use plait_pcap::{Interface, Packet, Reader, Writer};
//! use std::time::Duration;
//!
//! let mut writer = Writer::new(Vec::new(), None, vec![Interface::named("path0")])?;
//! writer.write(&Packet::new(0, Duration::from_millis(5), b"an IP packet"))?;
//! let file = writer.into_inner();
//!
//! let mut reader = Reader::new(&file[..])?;
//! let packet = reader.next().expect("there is one")?;
//! assert_eq!((&packet.data[..], packet.at), (&b"an IP packet"[..], Duration::from_millis(5)));
//! assert_eq!(reader.interfaces()[0].name, "path0");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod block;
mod packet;
#[cfg(feature = "read")]
mod reader;
mod writer;

pub use packet::{Direction, Interface, LinkType, Packet};
#[cfg(feature = "read")]
pub use reader::{ReadError, Reader};
pub use writer::Writer;
