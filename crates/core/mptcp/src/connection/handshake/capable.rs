//! MP_CAPABLE: the first subflow (RFC 8684, section 3.1), and the first forks to plain TCP.
//!
//! [`Protection`](crate::protection::Protection) decides what the options of the three segments mean. The code here acts on that decision.

use crate::log;
use plait_base::Instant;
use plait_wire::{Flags, Segment};

use crate::connection::fallback::Mapped;
use crate::connection::options_in::Signals;
use crate::connection::receiving::Arrived;
use crate::connection::trust::may_open_over;
use crate::protection::{Answered, Mode, Opened, Protection, SynAck};
use crate::role::Role;
use crate::subflows::{Kind, ResetInfo, Stage};
use crate::{Config, Connection, ConnectionError, Host, Path, PathClass};

impl Connection {
    /// Returns the path over which a SYN without MP_JOIN came.
    ///
    /// # Errors
    /// The connection must not be opened over this path.
    pub(crate) fn way_in(config: &Config, syn: &Segment, host: &dyn Host) -> Result<Path, ConnectionError> {
        let path = super::path_of(config, syn.destination.ip(), host);
        match path.class {
            PathClass::Never => Err(ConnectionError::Unreachable),
            PathClass::Trusted | PathClass::Untrusted if may_open_over(&config.protect, &path, host) => {
                Ok(path)
            }
            PathClass::Trusted | PathClass::Untrusted => Err(ConnectionError::NoTrustedPath),
        }
    }

    /// Opens the connection over `path` in answer to a SYN, with or without Multipath TCP.
    pub(crate) fn answer_syn(
        now: Instant,
        config: Config,
        syn: &Segment,
        path: &Path,
        host: &mut dyn Host,
    ) -> Self {
        let offer = Signals::read(syn).capable;
        let Answered { protection, decided } =
            Protection::answer(&config, syn, offer.as_ref(), || host.draw_key());
        let mut connection = Self::new(now, config, Role::Passive, protection);
        let index = connection.accept_first(now, path, syn, host);
        connection.paths.set_initial(syn.destination.ip(), syn.source);
        match decided {
            Some(Opened::FallBack(reason)) => connection.fall_back(index, reason, Mapped::Never),
            Some(Opened::Fail(error)) => connection.fail(error),
            Some(Opened::Multipath | Opened::Sealing | Opened::NotYet | Opened::WrongKeys) | None => {}
        }
        connection
    }

    /// Handles the answer to our SYN on a first subflow.
    pub(crate) fn on_first_syn_ack(&mut self, arrived: &Arrived<'_>) {
        let index = arrived.index;
        self.subflows.touch(index).state.on_open();
        let tuple = self.subflows[index].state.tuple();
        self.paths.set_initial(tuple.local.ip(), tuple.remote);
        let opened = self.protection.take_answer(&SynAck {
            subflow: self.subflows[index].state.id(),
            options: &arrived.segment.options,
            capable: arrived.signals.capable.as_ref(),
            was_plain: self.subflows[index].state.has_plain_syn(),
        });
        // The window of a SYN/ACK is not scaled, and TCP has taken that into account.
        self.on_opened(index, opened, arrived.window);
    }

    /// Applies the result of the first handshake to the subflow at `index`. The peer offers `window` bytes there.
    fn on_opened(&mut self, index: usize, opened: Opened, window: u32) {
        match opened {
            Opened::Multipath => {
                self.outgoing.on_data_ack(1, window);
            }
            Opened::FallBack(reason) => self.fall_back(index, reason, Mapped::Never),
            Opened::Fail(error) => self.fail(error),
            Opened::Sealing | Opened::NotYet | Opened::WrongKeys => return,
        }
        if !self.closing.is_over() {
            self.notices.connected();
        }
    }

    /// Handles an acceptable segment on the first subflow before the opener's key has arrived.
    pub(crate) fn on_first_third_ack(&mut self, arrived: &Arrived<'_>) {
        let Arrived { index, segment, signals, .. } = *arrived;
        if segment.flags.contains(Flags::SYN)
            || !segment.flags.contains(Flags::ACK)
            || self.mode() != Mode::Opening
        {
            return;
        }
        let subflow = self.subflows[index].state.id();
        let has_mapping = signals.dss.is_some() || arrived.offset > 1;
        let opened =
            self.protection.take_third_ack(subflow, &segment.options, signals.capable.as_ref(), has_mapping);
        match opened {
            Opened::Multipath | Opened::Sealing | Opened::FallBack(_) => {
                self.subflows.touch(index).state.on_open();
            }
            Opened::Fail(_) => {}
            Opened::WrongKeys => {
                log::debug!("third ACK dropped: its keys are not those of the handshake");
                self.counters.bad_keys += 1;
                self.subflows.touch(index).reset(ResetInfo::because(plait_wire::ResetReason::Mptcp));
            }
            Opened::NotYet => {
                if let Some(dss) = signals.dss {
                    self.incoming.keep_early_mapping(dss, arrived.offset);
                }
            }
        }
        self.on_opened(index, opened, arrived.window);
        if opened == Opened::Multipath {
            self.take_early_mappings(index);
        }
    }

    /// Handles a completed TCP handshake for which the options did not decide the mode.
    pub(crate) fn on_established(&mut self, index: usize) {
        let state = &mut self.subflows.touch(index).state;
        if state.stage() != Stage::Opening {
            return;
        }
        match (state.kind(), self.role, self.protection.mode()) {
            // Both sides have opened at the same time: there is no SYN/ACK with a key.
            (Kind::FirstActive, _, Mode::Opening) => {
                state.on_open();
                let (subflow, was_plain) = (state.id(), state.has_plain_syn());
                let nothing = SynAck { subflow, options: &[], capable: None, was_plain };
                let opened = self.protection.take_answer(&nothing);
                self.on_opened(index, opened, 0);
            }
            (Kind::FirstPassive, Role::Passive, Mode::Plain(_)) => {
                state.on_open();
                self.notices.connected();
            }
            (Kind::FirstActive | Kind::FirstPassive, _, _) => {}
            (Kind::JoinActive { .. } | Kind::JoinPassive { .. }, _, _) => {
                self.subflows.touch(index).reset(ResetInfo::because(plait_wire::ResetReason::Mptcp));
            }
        }
    }
}
