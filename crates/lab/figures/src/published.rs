//! Numbers of the papers, with their sources. Nothing here was measured by us.
//!
//! - Kato 2017: *Protecting Eavesdropping over Multipath TCP Communication Based on Not-Every-Not-Any Protection*.
//! - Kato 2018: *Proposal and Study on Implementation of Data Eavesdropping Protection Method over Multipath TCP Communication Using
//!   Data Scrambling and Path Dispersion*. Its Table II is that of 2017.
//! - Kato 2019: *Implementation and Performance Evaluation of Eavesdropping Protection Method over MPTCP Using Data Scrambling and
//!   Path Dispersion*.
//! - Jadin 2017: *Securing MultiPath TCP: Design & Implementation*, and the slides *Multipath TCP improvements* of the same year.

/// Kato 2017 and 2018, Table II: microseconds for 1280 bytes, there and back.
pub(crate) mod table_two {
    pub(crate) const DES: f64 = 2240.0;
    pub(crate) const TDEA: f64 = 6690.0;
    pub(crate) const AES_128: f64 = 2290.0;
    pub(crate) const AES_192: f64 = 2800.0;
    pub(crate) const AES_256: f64 = 3400.0;
    pub(crate) const STRAIGHTFORWARD: f64 = 950.0;
    pub(crate) const REVISED: f64 = 35.2;
    /// Kato 2017, section IV: "It is less than 1/60 compared with the DES and AES algorithms."
    pub(crate) const LEAD: f64 = 60.0;
    /// Kato 2017, Table I: the clock of the processor, in Hz.
    pub(crate) const CLOCK: f64 = 2.6e9;
}

/// Kato 2019, section V-B and the figures there.
pub(crate) mod captures {
    /// Figure 14: what is repeated in the scrambled stream of "0123456789" repeated, in steady state.
    pub(crate) const STEADY: &[u8] = b"4163850729";
    /// Figure 17, offsets 0190 to 01bf: three lines of the capture that are whole in the text.
    pub(crate) const FIGURE_17: [u8; 48] = [
        0x7a, 0x57, 0x50, 0x0e, 0x32, 0x3f, 0x7a, 0x2a, 0x3b, 0x28, 0x3b, 0x37, 0x3f, 0x2e, 0x3f, 0x28, 0x29,
        0x7a, 0x3b, 0x28, 0x3f, 0x7a, 0x2a, 0x3b, 0x39, 0x31, 0x3f, 0x3e, 0x7a, 0x33, 0x34, 0x7a, 0x3b, 0x34,
        0x7a, 0x3f, 0x36, 0x3f, 0x37, 0x3f, 0x34, 0x2e, 0x7a, 0x3d, 0x33, 0x2c, 0x3f, 0x34,
    ];
}

/// Kato 2019, Figure 18 as section V-C tells it, in Mbit/s: "around" all of them, and "similar for all the sizes".
pub(crate) mod figure_18 {
    pub(crate) const MPTCP: f64 = 90.0;
    pub(crate) const SCRAMBLED: f64 = 75.0;
    pub(crate) const AES: f64 = 2.0;
    /// Sizes in MB; the text names the ends of the range.
    pub(crate) const SIZES: [u64; 4] = [20, 40, 60, 80];
}

/// Jadin 2017, Figure 8 as section V tells it, in Mbit/s: "roughly", "about".
pub(crate) mod figure_8 {
    pub(crate) const MPTCP: f64 = 1600.0;
    pub(crate) const TLS: f64 = 700.0;
    pub(crate) const SEALED: f64 = 350.0;
    /// Bytes of a write.
    pub(crate) const BLOCK: usize = 4096;
}

/// Jadin 2017, Figure 9 as section V tells it.
pub(crate) mod figure_9 {
    /// Bytes of the transfer.
    pub(crate) const SIZE: u64 = 1_000_000;
    /// Bytes that have been transferred when the attacker strikes.
    pub(crate) const STRIKE: u64 = 500_000;
}
