//! Standard input and output of the process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

/// Room asked for in a pipe that is our input or output; the kernel's default is a quarter of a block.
const PIPE: i32 = 1 << 20;

/// The descriptors themselves, without buffers in front: the blocks are large, and what is small is wanted at once.
pub(crate) fn open() -> io::Result<(File, File)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    widen(&input);
    widen(&output);
    Ok((input, output))
}

/// Makes a pipe hold more, which saves most of the waking up of both ends. What is no pipe stays as it is.
fn widen(file: impl AsFd) {
    if let Err(errno) = fcntl(file, FcntlArg::F_SETPIPE_SZ(PIPE)) {
        tracing::trace!(%errno, "not a pipe, or one that may not grow");
    }
}
