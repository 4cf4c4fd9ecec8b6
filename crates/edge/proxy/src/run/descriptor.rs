//! File descriptors that arrive as plain numbers.

#![allow(unsafe_code, reason = "a number becomes the owner of a descriptor, which the compiler cannot check")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that was passed to this process for it alone: by SCM_RIGHTS, by a parent
/// that named its number on the command line, or by a service manager.
pub(crate) fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: all callers got the number from the process that made the descriptor for them, and use it once;
    // a number that is no open descriptor gives EBADF on first use.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
