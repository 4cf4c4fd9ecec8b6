//! System calls that have no safe wrapper: the only unsafe code of the crate.

mod cookie;

pub(crate) use cookie::namespace_cookie;
