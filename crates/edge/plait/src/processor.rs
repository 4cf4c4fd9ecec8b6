//! The abilities of this processor.

/// Whether it has instructions for AES, and for the authentication in Galois/Counter Mode.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub(crate) fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// Whether it has instructions for AES, and for the authentication in Galois/Counter Mode.
#[cfg(target_arch = "aarch64")]
pub(crate) fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

/// Whether it has instructions for AES, and for the authentication in Galois/Counter Mode. Unknown: the answer is no.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn has_aes() -> bool {
    false
}
