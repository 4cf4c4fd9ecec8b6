//! A deterministic network for tests: hosts, paths, middleboxes, captures.
