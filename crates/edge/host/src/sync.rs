//! What threads share: the locks, atomics and signals of the system, or those of loom in the models (`models.rs`).

#[cfg(not(all(test, feature = "models")))]
mod chosen {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64};
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use crate::sys::Signal;
}

#[cfg(all(test, feature = "models"))]
mod chosen {
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) use crate::models::{AtomicU8, Signal};
}

pub(crate) use chosen::{AtomicU8, AtomicU64, Mutex, MutexGuard, Signal};
