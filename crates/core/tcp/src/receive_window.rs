//! The window that we offer.
//!
//! The owner sets a size, and the right edge moves with the data. The edge may move back if the owner shares one buffer between several
//! connections. Data within the largest edge ever offered is accepted, because the peer may have sent it already.

/// Largest shift (RFC 7323, section 2.3).
const MAX_SCALE: u8 = 14;

/// Our side of flow control; edges are stream offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    largest: u32,
    scale: u8,
    scaling: bool,
    /// Right edge of the last segment sent.
    offered: u64,
    /// Rightmost edge of all.
    furthest: u64,
    /// Rightmost edge that the owner has ever asked for.
    wanted: u64,
}

impl ReceiveWindow {
    /// `largest`: the largest size that will ever be asked for.
    pub(crate) fn new(largest: u32) -> Self {
        let largest = largest.clamp(u32::from(u16::MAX).min(largest), u32::from(u16::MAX) << MAX_SCALE);
        Self {
            size: largest,
            largest,
            scale: Self::scale_for(largest),
            scaling: true,
            offered: 0,
            furthest: 0,
            wanted: 0,
        }
    }

    /// The smallest shift that lets the window field express `largest`.
    fn scale_for(largest: u32) -> u8 {
        (0..MAX_SCALE).find(|&scale| largest >> scale <= u32::from(u16::MAX)).unwrap_or(MAX_SCALE)
    }

    /// Bytes that the owner asks for.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The shift to offer on a SYN.
    pub(crate) fn offered_scale(&self) -> u8 {
        self.scale
    }

    /// Notes that the peer has no window scaling: no window is larger than the field can express (RFC 7323, section 2.2).
    pub(crate) fn forbid_scaling(&mut self) {
        self.scale = 0;
        self.scaling = false;
        self.largest = self.largest.min(u32::from(u16::MAX));
        self.size = self.size.min(self.largest);
    }

    /// Whether windows are scaled, as far as the peer has spoken.
    pub(crate) fn scaling(&self) -> bool {
        self.scaling
    }

    pub(crate) fn resize(&mut self, bytes: u32) {
        self.size = bytes.min(self.largest);
    }

    /// Rightmost edge ever offered: data up to here is taken.
    pub(crate) fn furthest(&self) -> u64 {
        self.furthest
    }

    /// Returns the smallest increase worth an update: silly windows cause silly segments (RFC 9293, section 3.8.6.2.2).
    fn worthwhile(&self, mss: u16) -> u64 {
        u64::from(u32::from(mss).min(self.largest / 2))
    }

    /// The window field of a SYN, which is never scaled.
    pub(crate) fn field_of_syn(&mut self) -> u16 {
        let field = u16::try_from(self.size).unwrap_or(u16::MAX);
        self.offered = 1 + u64::from(field);
        self.furthest = self.furthest.max(self.offered);
        self.wanted = self.wanted.max(self.offered);
        field
    }

    /// The window field of the next segment, when all below `next` has arrived.
    pub(crate) fn field(&mut self, next: u64, mss: u16) -> u16 {
        let (field, edge) = self.expressible(next, mss);
        self.wanted = self.wanted.max(next + u64::from(self.size));
        self.offered = edge;
        self.furthest = self.furthest.max(self.offered);
        field
    }

    /// Returns the window field of a segment that left now, and its right edge.
    fn expressible(&self, next: u64, mss: u16) -> (u16, u64) {
        let wanted = next + u64::from(self.size);
        let opens_little = wanted > self.offered && wanted - self.offered < self.worthwhile(mss);
        let edge = if opens_little { self.offered.max(next) } else { wanted };
        let mut units = (edge - next) >> self.scale;
        // Rounding alone must not move the edge back. But rounding up once more after each part of a unit would move it without end, even
        // if the application does not read.
        let (down, unit) = (next + (units << self.scale), 1u64 << self.scale);
        if down < self.offered && down + unit > self.offered && down < self.wanted.max(wanted) {
            units += 1;
        }
        let field = u16::try_from(units).unwrap_or(u16::MAX);
        (field, next + (u64::from(field) << self.scale))
    }

    /// Whether the window has opened so far that the peer needs an update: by two segments, and beyond half of what it could still send. An
    /// increase that the field cannot express does not count. The peer would answer an update without news by one of its own, and so on.
    pub(crate) fn wants_update(&self, next: u64, mss: u16) -> bool {
        let left = self.offered.saturating_sub(next);
        let (_, edge) = self.expressible(next, mss);
        let opened = edge.saturating_sub(self.offered);
        let steps = if left == 0 { 1 } else { 2 };
        opened > 0 && opened >= self.worthwhile(mss) * steps && opened >= left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_smallest_that_reaches_the_largest_window() {
        for (largest, scale) in [(65_535, 0), (65_536, 1), (16 << 20, 9), (u32::MAX, 14)] {
            assert_eq!(ReceiveWindow::new(largest).offered_scale(), scale, "{largest}");
        }
    }

    //= rfc8684 3.3.4-01
    //= rfc9293 3.8.6-01
    #[test]
    fn rounding_never_moves_the_edge_back() {
        let mut window = ReceiveWindow::new(16 << 20);
        window.field(1, 1000);
        let mut edge = window.furthest();
        for next in (1..5_000).step_by(7) {
            window.resize(u32::try_from(edge - next).expect("small"));
            window.field(next, 1000);
            assert!(window.offered >= edge && window.offered - next <= (16 << 20) + 512);
            edge = edge.max(window.offered);
        }
    }

    #[test]
    fn rounding_gives_one_unit_away_and_no_more() {
        let mut window = ReceiveWindow::new(16 << 20);
        let (mut next, full) = (1, 10_001);
        window.resize(10_000);
        for _ in 0..1000 {
            window.field(next, 1000);
            // The peer sends half of what it may.
            next += (window.offered - next).div_ceil(2);
            window.resize(u32::try_from(full).expect("small").saturating_sub(next as u32));
        }
        assert!((full..full + 512).contains(&window.furthest()), "{}", window.furthest());
    }

    #[test]
    fn a_window_that_opens_by_a_few_bytes_stays_shut() {
        let mut window = ReceiveWindow::new(65_535);
        window.resize(0);
        assert_eq!(window.field(1, 1000), 0);
        window.resize(999);
        assert_eq!(window.field(1, 1000), 0);
        assert!(!window.wants_update(1, 1000));
        window.resize(1000);
        assert!(window.wants_update(1, 1000));
        assert_eq!(window.field(1, 1000), 1000);
    }

    #[test]
    fn what_was_once_offered_is_still_taken_when_the_window_shrinks() {
        let mut window = ReceiveWindow::new(65_535);
        window.field(1, 1000);
        window.resize(100);
        assert_eq!(window.field(1, 1000), 100);
        assert_eq!(window.furthest(), 1 + 65_535);
    }

    #[test]
    fn what_the_field_cannot_say_is_no_update() {
        let mut unscaled = ReceiveWindow::new(16 << 20);
        unscaled.forbid_scaling();
        unscaled.resize(16 << 20);
        assert_eq!(unscaled.field(1, 1000), u16::MAX);
        assert!(!unscaled.wants_update(1, 1000));
        assert!(unscaled.wants_update(40_001, 1000), "half of it was used");
        let mut coarse = ReceiveWindow::new(1 << 30);
        coarse.resize(16_000);
        assert_eq!(coarse.field(1, 1000), 0, "a unit is 16,384 bytes");
        assert!(!coarse.wants_update(1, 1000));
    }

    #[test]
    fn after_an_update_none_is_wanted() {
        for (largest, scaled) in
            [(1 << 30, true), (16 << 20, true), (16 << 20, false), (65_535, true), (100, true)]
        {
            let mut window = ReceiveWindow::new(largest);
            if !scaled {
                window.forbid_scaling();
            }
            for step in 0..20_000u64 {
                let next = 1 + step * 37;
                window.resize(((step * 7919) % 100_003) as u32 * (1 + (step % 900) as u32));
                window.field(next, 1000);
                assert!(!window.wants_update(next, 1000), "{window:?} at {next}");
            }
        }
    }

    #[test]
    fn an_update_waits_until_half_of_the_window_is_used() {
        let mut window = ReceiveWindow::new(60_000);
        window.field(1, 1000);
        assert!(!window.wants_update(20_001, 1000));
        assert!(window.wants_update(30_001, 1000));
    }
}
