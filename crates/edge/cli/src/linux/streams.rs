//! Standard input and output of the process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

/// Requested capacity of a pipe that is our input or output; the kernel's default is a quarter of a block.
const PIPE: i32 = 1 << 20;

/// The descriptors themselves, without buffers in front: the blocks are large, and small data is needed at once.
pub(crate) fn open() -> io::Result<(File, File)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    widen(&input);
    widen(&output);
    Ok((input, output))
}

/// Enlarges a pipe, which saves most wake-ups of both ends. Other files stay as they are.
fn widen(file: impl AsFd) {
    if let Err(errno) = fcntl(file, FcntlArg::F_SETPIPE_SZ(PIPE)) {
        tracing::trace!(%errno, "not a pipe, or one that may not grow");
    }
}
