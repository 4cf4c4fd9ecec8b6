//! The action of each situation, and its effect on a system that does not detect it: a sentence or two for
//! people.

/// Of an attack by its name, or of peace.
pub(super) fn of(attack: Option<&str>) -> &'static str {
    match attack {
        None => "No attack: the page crosses both paths, and what counts is how fast it does.",
        Some("flip") => {
            "One byte of one packet is changed on path b and every checksum is mended, so that TCP sees nothing wrong. A system that cannot check the bytes \
             hands the wrong one to the program; a system that checks only the whole stream must break off."
        }
        Some("insert") => {
            "Forged bytes arrive just before the true ones, with their sequence numbers. TCP takes what comes first and drops what comes second."
        }
        Some("rst") => {
            "A forged reset with the right sequence number ends the TCP connection of path b. What was on its way there must come by path a."
        }
        Some("forge-dss") => {
            "The option that says where in the stream a packet belongs is changed: right bytes at a wrong place."
        }
        Some("fastclose") => {
            "A forged MP_FASTCLOSE asks for the end of the whole connection, all paths; the attacker has its key if that went over path b in clear."
        }
        Some("cut") => {
            "Path b goes dead without a word: everything on it is lost from one moment to the next, and no error is reported."
        }
        Some(_) => "An attack on path b.",
    }
}

/// A word or two for the head of a row.
pub(super) fn title(attack: &str) -> &str {
    match attack {
        "peace" => "in peace",
        "flip" => "a byte changed",
        "insert" => "bytes inserted",
        "rst" => "reset forged",
        "forge-dss" => "bytes moved",
        "fastclose" => "close forged",
        "cut" => "path b cut",
        other => other,
    }
}
