//! One generation of the keys of one direction.

use std::sync::Arc;

use super::aead::BlockKey;
use super::datagram::DatagramKeys;
use super::option_tag::{OptionKey, SubflowTag};
use super::schedule::DirectionSecrets;
use super::secret::MixSecret;
use super::suite::Suite;

/// Block key and option keys derived so far. The block key is shared with sealing and opening jobs.
pub(super) struct Generation {
    number: u64,
    secrets: DirectionSecrets,
    block_key: Arc<BlockKey>,
    /// One entry per subflow of the connection. The connection reports when one is gone.
    option_keys: Vec<(SubflowTag, OptionKey)>,
    datagram_keys: DatagramKeys,
}

impl Generation {
    /// Generation 0.
    pub(super) fn new(secrets: DirectionSecrets, suite: Suite) -> Self {
        Self::numbered(0, secrets, suite)
    }

    /// Returns the next generation, with the shares of paths.
    pub(super) fn next(&self, suite: Suite, mixes: &[MixSecret]) -> Self {
        Self::numbered(self.number + 1, self.secrets.next(mixes), suite)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The six bits of it that a block's first byte has room for.
    pub(super) fn wire(&self) -> u8 {
        (self.number & 0x3f) as u8
    }

    pub(super) fn block_key(&self) -> &Arc<BlockKey> {
        &self.block_key
    }

    /// The option key of `subflow`, derived at its first use.
    pub(super) fn option_key(&mut self, subflow: SubflowTag) -> &OptionKey {
        let known = self.option_keys.iter().position(|(of, _)| *of == subflow);
        let index = known.unwrap_or_else(|| {
            self.option_keys.push((subflow, self.secrets.option_key(subflow)));
            self.option_keys.len() - 1
        });
        &self.option_keys[index].1
    }

    /// The key for datagrams on `subflow`, derived at its first use.
    pub(super) fn datagram_key(&mut self, suite: Suite, subflow: SubflowTag) -> &BlockKey {
        let secrets = &self.secrets;
        self.datagram_keys.get_or_derive(subflow, || secrets.datagram_key(suite, subflow))
    }

    /// Returns the option key of a name that may never become a subflow. It is not stored, so that invented names use no memory.
    pub(super) fn option_key_once(&self, subflow: SubflowTag) -> OptionKey {
        self.secrets.option_key(subflow)
    }

    pub(super) fn forget_subflow(&mut self, subflow: SubflowTag) {
        self.option_keys.retain(|(of, _)| *of != subflow);
        self.datagram_keys.forget(subflow);
    }

    /// Returns the rest after all its blocks have arrived: keys for tags that are still in flight.
    pub(super) fn retire(self) -> RetiredGeneration {
        RetiredGeneration {
            number: self.number,
            wire: self.wire(),
            option_keys: self.option_keys,
            datagram_keys: self.datagram_keys,
        }
    }

    fn numbered(number: u64, secrets: DirectionSecrets, suite: Suite) -> Self {
        let block_key = Arc::new(secrets.block_key(suite));
        Self { number, secrets, block_key, option_keys: Vec::new(), datagram_keys: DatagramKeys::default() }
    }

    #[cfg(test)]
    pub(super) fn kept_option_keys(&self) -> usize {
        self.option_keys.len()
    }

    pub(super) fn secrets(&self) -> &DirectionSecrets {
        &self.secrets
    }
}

/// A generation whose blocks have all arrived. No block opens with it.
pub(super) struct RetiredGeneration {
    number: u64,
    wire: u8,
    option_keys: Vec<(SubflowTag, OptionKey)>,
    datagram_keys: DatagramKeys,
}

impl RetiredGeneration {
    /// The option key of a subflow that had one, if these six bits mean this generation.
    pub(super) fn option_key(&self, wire: u8, subflow: SubflowTag) -> Option<&OptionKey> {
        let key = self.option_keys.iter().find(|(of, _)| *of == subflow && self.wire == wire)?;
        Some(&key.1)
    }

    /// The number of the generation, and its key for datagrams of a subflow that had one, if these six bits mean this generation.
    pub(super) fn datagram_key(&self, wire: u8, subflow: SubflowTag) -> Option<(u64, &BlockKey)> {
        let key = self.datagram_keys.get(subflow).filter(|_| self.wire == wire)?;
        Some((self.number, key))
    }

    pub(super) fn forget_subflow(&mut self, subflow: SubflowTag) {
        self.datagram_keys.forget(subflow);
        self.option_keys.retain(|(of, _)| *of != subflow);
    }
}
