//! The window that the peer offers (RFC 9293, section 3.10.7.4).

/// The peer's side of flow control; positions are stream offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendWindow {
    size: u32,
    largest: u32,
    scale: u8,
    /// Where the segment lay that the window comes from (SND.WL1), and what it acknowledged (SND.WL2).
    from: u64,
    acked: u64,
}

impl SendWindow {
    /// From a SYN, whose window is not scaled; `scale` counts from now on.
    pub(crate) fn from_syn(field: u16, scale: u8) -> Self {
        Self { size: u32::from(field), largest: u32::from(field), scale, from: 0, acked: 0 }
    }

    /// A window field in bytes.
    pub(crate) fn scaled(&self, field: u16) -> u32 {
        u32::from(field) << self.scale
    }

    /// Takes the window of a segment at `seq` that acknowledges `ack`, unless an older one. Returns whether
    /// it changed.
    pub(crate) fn update(&mut self, seq: u64, ack: u64, field: u16) -> bool {
        if seq < self.from || (seq == self.from && ack < self.acked) {
            return false;
        }
        let size = self.scaled(field);
        let changed = size != self.size;
        *self = Self { size, largest: self.largest.max(size), from: seq, acked: ack, ..*self };
        changed
    }

    /// Bytes beyond the cumulative acknowledgment that may be in flight.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Largest size ever offered.
    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_segment_does_not_take_the_window_back() {
        let mut window = SendWindow::from_syn(1000, 2);
        assert_eq!(window.size(), 1000);
        assert!(window.update(10, 5, 500));
        assert_eq!(window.size(), 2000);
        assert!(!window.update(9, 6, 1));
        assert!(!window.update(10, 4, 1));
        assert_eq!((window.size(), window.largest()), (2000, 2000));
        assert!(window.update(10, 5, 1), "the same segment with another window is an update");
    }
}
