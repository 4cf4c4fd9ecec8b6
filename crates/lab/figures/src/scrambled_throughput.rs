//! Kato 2019, Figure 18: throughput of file transfers.

use plait_bench::digits;
use plait_lab::Direction;

use crate::claim::Claim;
use crate::figure::Finding;
use crate::measure::Runs;
use crate::place::Wires;
use crate::published::{figure_18 as published, table_two};
use crate::system::Instructions::{LeftOut, Used};
use crate::system::System;
use crate::throughput::{Throughput, Transfer};

/// Kernel MPTCP, scrambled and AES are the paper's.
const SYSTEMS: [System; 4] =
    [System::Mptcp, System::Plain, System::Scrambled, System::Aes { instructions: LeftOut }];
/// Systems if the processors are the bottleneck, including some that the papers did not have.
const FREE: [System; 5] = [
    System::Mptcp,
    System::Plain,
    System::Scrambled,
    System::Aes { instructions: LeftOut },
    System::Aes { instructions: Used },
];
/// Bytes of a write.
const BLOCK: usize = 4096;
/// Mbit/s of the Ethernet, at the server and at the client.
const ETHERNET: u32 = 100;
/// Mbit/s of the WLAN: what IEEE 802.11g leaves of 54 for payload and headers of IP.
const WLAN: u32 = 25;

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let sizes = if runs.is_quick { vec![1, 2] } else { published::SIZES.to_vec() };
    let transfer = Transfer { direction: Direction::ToClient, block: BLOCK, sizes };
    let wires = Wires::shared(ETHERNET, ETHERNET, WLAN)?;
    let limited = Throughput::measure(runs, "wires as in the paper", &wires, &SYSTEMS, &transfer)?;
    drop(wires);
    let wires = Wires::shared_without_limits()?;
    let free = Throughput::measure(runs, "the same wires without limits", &wires, &FREE, &transfer)?;
    let mut rows = limited.rows(paper);
    rows.extend(free.rows(|_| None));
    Ok(Finding {
        title: "Throughput of a file transfer: MPTCP, scrambled, AES",
        source: "Kato 2019, Figure 18",
        published: "Files of 20 to 80 MB go from server to client, which has Ethernet (100base-T) and WLAN (IEEE 802.11g); the server has Ethernet \
                    only. MPTCP around 90 Mbit/s, scrambled around 75, AES-128-CBC in the application, by a sample program in C, 2; similar for \
                    all sizes. The computers were old (Pentium M, Core 2 Duo).",
        made: format!(
            "Two hosts and a router in network namespaces: {ETHERNET} Mbit/s at the server and on the client's first path, {WLAN} on its second, \
             which shares the server's wire with the first. An application writes blocks of {BLOCK} bytes, another reads; the time counts from its first \
             read to the moment when 20, 40, 60 and 80 MB have arrived, so that one transfer has all sizes. AES is `openssl enc -aes-128-cbc` \
             between application and socket, with AES instructions left out (OPENSSL_ia32cap), as on the paper's processors. Then the same without any limit of \
             rate, where processors decide, also with these instructions."
        ),
        commands: limited.commands.clone(),
        departures: vec![
            format!("The WLAN is a wire of {WLAN} Mbit/s: no losses, no other sender on the air."),
            "The bytes come from memory and not from a file.".to_owned(),
            "plait, plain is ours to add: what scrambling costs is the difference to it.".to_owned(),
        ],
        rows,
        claims: claims(&limited, &free)?,
        pictures: vec![limited.picture()?, free.picture()?],
        exhibits: Vec::new(),
    })
}

fn paper(system: System) -> Option<f64> {
    match system {
        System::Mptcp => Some(published::MPTCP),
        System::Scrambled => Some(published::SCRAMBLED),
        System::Aes { instructions: LeftOut } => Some(published::AES),
        System::Aes { instructions: Used } | System::Plain | System::Tls { .. } | System::Sealed { .. } => {
            None
        }
    }
}

fn claims(limited: &Throughput, free: &Throughput) -> anyhow::Result<Vec<Claim>> {
    let portable = System::Aes { instructions: LeftOut };
    let (mptcp, scrambled, aes) =
        (limited.of(System::Mptcp)?, limited.of(System::Scrambled)?, limited.of(portable)?);
    let (free_plain, free_scrambled) = (free.of(System::Plain)?, free.of(System::Scrambled)?);
    let (free_portable, free_aes) = (free.of(portable)?, free.of(System::Aes { instructions: Used })?);
    // Bits of a message over the time it takes there and back.
    let program = 1280.0 * 8.0 / table_two::AES_128;
    let unevenness = [System::Mptcp, System::Scrambled, portable]
        .into_iter()
        .map(|system| limited.unevenness(system))
        .try_fold(1.0, |worst, this| this.map(|this| f64::max(worst, this)))?;
    Ok(vec![
        Claim::judged(
            "MPTCP reaches around 90 Mbit/s: the wire of the server.",
            format!("{} Mbit/s", digits(mptcp)),
            "80 to 100 Mbit/s",
            (80.0..=100.0).contains(&mptcp),
            "Both paths together are not used to the end.",
        ),
        Claim::judged(
            "Scrambled throughput is lower than that of MPTCP (75 of 90 Mbit/s), but high enough.",
            format!("{} of {} Mbit/s", digits(scrambled), digits(mptcp)),
            "70 to 92 % of MPTCP's",
            (0.70..=0.92).contains(&(scrambled / mptcp)),
            &format!(
                "Scrambling takes no time that would count at this rate: without limits plait carries {} Mbit/s scrambled and {} plain. The paper's \
                 computers were slower, and its code worked byte by byte inside a debugging probe of the kernel.",
                digits(free_scrambled),
                digits(free_plain)
            ),
        ),
        Claim::judged(
            "With AES the throughput goes down to 2 Mbit/s.",
            format!("{} Mbit/s without AES instructions", digits(aes)),
            "less than a tenth of MPTCP's",
            aes < mptcp / 10.0,
            &format!(
                "It was that AES program, on those computers: 1280 bytes in 2.29 ms (Table II, on a faster one) are {program:.1} Mbit/s. Without limits \
                 OpenSSL's AES reaches {} Mbit/s without the processor's instructions, and {} with them.",
                digits(free_portable),
                digits(free_aes)
            ),
        ),
        Claim::judged(
            "The results are similar for all sizes.",
            format!(
                "the best size is {} times as fast as the worst, in the system where they differ most",
                digits(unevenness)
            ),
            "less than 1.15 times in each of the paper's three systems",
            unevenness < 1.15,
            "What a transfer needs to find its rate weighs more in small ones.",
        ),
    ])
}
