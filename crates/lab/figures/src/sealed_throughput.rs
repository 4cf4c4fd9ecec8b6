//! Jadin 2017, Figure 8: throughput of long transfers in small writes.

use plait_bench::digits;
use plait_lab::Direction;

use crate::claim::Claim;
use crate::figure::Finding;
use crate::measure::Runs;
use crate::place::Wires;
use crate::published::figure_8 as published;
use crate::system::Instructions::{LeftOut, Used};
use crate::system::System;
use crate::throughput::{Throughput, Transfer};

const TLS: System = System::Tls { instructions: Used };
const TLS_WITHOUT: System = System::Tls { instructions: LeftOut };
const SEALED: System = System::Sealed { instructions: Used };
const SEALED_WITHOUT: System = System::Sealed { instructions: LeftOut };
/// The paper's three, as its processors did them and as today's do; plait, plain is ours to add.
const SYSTEMS: [System; 6] = [System::Mptcp, System::Plain, TLS, TLS_WITHOUT, SEALED, SEALED_WITHOUT];
/// Mbit/s of each wire.
const WIRE: u32 = 1000;

pub(crate) fn measure(runs: &Runs<'_>) -> anyhow::Result<Finding> {
    let sizes = if runs.is_quick { vec![5, 10] } else { vec![100, 200, 400, 600, 800, 1000] };
    let transfer = Transfer { direction: Direction::ToServer, block: published::BLOCK, sizes };
    let wires = Wires::equal(Some(WIRE))?;
    let limited = Throughput::measure(runs, "two wires of 1 Gbit/s", &wires, &SYSTEMS, &transfer)?;
    drop(wires);
    let wires = Wires::equal(None)?;
    // What processors do does not change from here on, and the time is better spent on the wires of the paper.
    let sizes = transfer.sizes.iter().copied().filter(|size| *size <= 400).collect();
    let shorter = Transfer { sizes, ..transfer };
    let free = Throughput::measure(runs, "two wires without limits", &wires, &SYSTEMS, &shorter)?;
    let mut rows = limited.rows(paper);
    rows.extend(free.rows(|_| None));
    let second = limited.second.map_or_else(String::new, |share| {
        format!(" The second wire carried {:.0} % of all bytes where rates are limited.", 100.0 * share)
    });
    Ok(Finding {
        title: "Throughput of long transfers in writes of 4096 bytes: MPTCP, TLS over MPTCP, MPTCPsec",
        source: "Jadin 2017, Figure 8",
        published: "100 MB to 1 GB from memory, in writes of 4096 bytes, between two low-end servers (AMD, no AES instructions, Linux 4.1) over two Ethernet \
                    links of 1 Gbit/s; AES128-GCM, means of 15 transfers. MPTCP roughly 1.6 Gbit/s, TLS 1.2 over MPTCP (OpenSSL) about 700 Mbit/s, \
                    MPTCPsec 350 Mbit/s, whose code \"has not been optimised\".",
        made: format!(
            "Two hosts in network namespaces on the same processors, joined by two wires of {WIRE} Mbit/s each. The client's application sends from \
             memory in writes of {} bytes, the server's reads and notes the time when so much has arrived, so that one transfer has all sizes. TLS 1.2 with \
             AES128-GCM by OpenSSL over a socket of kernel MPTCP; plait seals, fed through a pipe. \"no AES instructions\": the \
             same programs with these and carry-less multiplication left out (OPENSSL_ia32cap), as on the paper's processors. Then the same without any limit \
             of rate, where processors decide.{second}",
            published::BLOCK
        ),
        commands: limited.commands.clone(),
        departures: vec![
            "Segmentation offload is on: without it packets cost more than their encryption, in all systems alike. The paper turned it off.".to_owned(),
            "Both hosts share this machine's processors, the paper's had their own.".to_owned(),
            "Without limits the transfers end at 400 MB, so that all figures together take less than a quarter of an hour.".to_owned(),
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
        System::Tls { instructions: LeftOut } => Some(published::TLS),
        System::Sealed { instructions: LeftOut } => Some(published::SEALED),
        System::Tls { instructions: Used }
        | System::Sealed { instructions: Used }
        | System::Plain
        | System::Scrambled
        | System::Aes { .. } => None,
    }
}

fn claims(limited: &Throughput, free: &Throughput) -> anyhow::Result<Vec<Claim>> {
    let mptcp = limited.of(System::Mptcp)?;
    let (tls, sealed) = (limited.of(TLS_WITHOUT)?, limited.of(SEALED_WITHOUT)?);
    let each = |bed: &Throughput| -> anyhow::Result<String> {
        let pair = |with, without| -> anyhow::Result<String> {
            Ok(format!("{} ({} without AES instructions)", digits(bed.of(with)?), digits(bed.of(without)?)))
        };
        Ok(format!(
            "MPTCP {}, TLS {}, sealed {} Mbit/s",
            digits(bed.of(System::Mptcp)?),
            pair(TLS, TLS_WITHOUT)?,
            pair(SEALED, SEALED_WITHOUT)?
        ))
    };
    Ok(vec![
        Claim::judged(
            "MPTCP reaches roughly 1.6 of 2 Gbit/s.",
            format!("{} Mbit/s", digits(mptcp)),
            "1.4 to 2 Gbit/s",
            (1400.0..=2000.0).contains(&mptcp),
            "Both wires together are not used to the end here.",
        ),
        Claim::judged(
            "TLS drops the throughput of MPTCP to less than half (700 of 1600 Mbit/s).",
            format!("{:.0} % of MPTCP's, without AES instructions; {}", 100.0 * tls / mptcp, each(limited)?),
            "less than 65 % of MPTCP's, without AES instructions",
            tls < 0.65 * mptcp,
            &format!(
                "Processors are faster than these wires even without AES instructions. Without limits: {}.",
                each(free)?
            ),
        ),
        Claim::judged(
            "MPTCPsec is slower than TLS over MPTCP (350 of 700 Mbit/s), its code not being optimised.",
            format!(
                "{:.0} % of TLS's, without AES instructions; {}. Without limits: {}",
                100.0 * sealed / tls,
                each(limited)?,
                each(free)?
            ),
            "less than 90 % of TLS's over wires of 1 Gbit/s, without AES instructions",
            sealed < 0.9 * tls,
            "plait seals blocks of up to 64,768 bytes, whatever the application writes; the paper's code sealed segments, and TLS has a record for each \
             write.",
        ),
    ])
}
