//! Attacks by editing headers: no authentication covers them, as middleboxes may have to change them.

use plait_wire::{Dss, MptcpOption, OptionBytes, Segment, TcpOption};

use super::option_list::{TIMESTAMPS, join, list, subtype};
use super::{Attack, AttackName, Piece};

/// The subtype of DSS.
const DSS: u8 = 2;
/// The range of the echo in the timestamps option (RFC 7323, section 3.2).
const ECHO: std::ops::Range<usize> = 6..10;

/// The segment as the attack has it; `None` if there is nothing to edit.
pub(super) fn edit(attack: &Attack, segment: Segment) -> Option<Vec<Piece>> {
    let (edited, what) = match attack.name {
        AttackName::StripDataAck => (without_data_ack(segment)?, "Data-ACK removed".to_owned()),
        AttackName::CloseWindow => {
            let what = format!("window {} becomes 0", segment.window);
            (Segment { window: 0, ..segment }, what)
        }
        AttackName::AgeEchoes => {
            let back = u32::try_from(attack.time().as_millis()).unwrap_or(u32::MAX);
            (with_older_echo(segment, back)?, format!("echo of a timestamp {back} ms older"))
        }
        _ => return None,
    };
    Some(vec![Piece::treated(attack.name, edited, what)])
}

fn without_data_ack(segment: Segment) -> Option<Segment> {
    let mut options = list(&segment.options);
    let index = options.iter().position(|option| subtype(option) == Some(DSS))?;
    let Ok(MptcpOption::Dss(dss)) = MptcpOption::parse(options[index].get(2..)?) else { return None };
    dss.data_ack?;
    if dss.mapping.is_none() {
        options.remove(index);
    } else {
        let mut bytes = OptionBytes::new();
        if !TcpOption::Mptcp(MptcpOption::Dss(Dss { data_ack: None, ..dss })).emit(&mut bytes) {
            return None;
        }
        options[index] = bytes.to_vec();
    }
    Some(Segment { options: join(&options), ..segment })
}

fn with_older_echo(segment: Segment, back: u32) -> Option<Segment> {
    let mut options = list(&segment.options);
    let echo = options.iter_mut().find(|option| option.first() == Some(&TIMESTAMPS))?.get_mut(ECHO)?;
    let old = u32::from_be_bytes(<[u8; 4]>::try_from(&*echo).ok()?);
    echo.copy_from_slice(&old.wrapping_sub(back).to_be_bytes());
    Some(Segment { options: join(&options), ..segment })
}
