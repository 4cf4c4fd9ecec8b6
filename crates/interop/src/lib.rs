//! The Linux kernel as the peer: scenarios in network namespaces, with the kernel's counters as evidence.
