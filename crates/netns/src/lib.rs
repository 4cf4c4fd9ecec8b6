//! Network namespaces, veth pairs, routes, rules and rate limits.
