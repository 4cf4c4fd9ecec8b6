//! The sandbox of services limits what an attacker that has taken over this process can do.
//!
//! Landlock leaves the files that the options name and those of the system. Seccomp leaves out calls of the kernel that no part of plait makes:
//! mounts, debuggers, kernel modules, BPF, keys of the kernel. Programs that plait starts (`ip`, `nft`, hooks) are in the sandbox, too.

use std::collections::BTreeMap;
use std::env;
use std::fs::DirBuilder;
use std::io::{IsTerminal, stdin};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use plait_console::prerequisite::Found;

use crate::configuration::InEffect;
use crate::forward::socket_of;
use crate::linux::{accounts, directory, usage};
use crate::options::Options;
use crate::protection;

/// The version of Landlock whose rights are used; older kernels have fewer.
const RIGHTS: ABI = ABI::V5;

/// Directories of the system, for reading and execution.
const SYSTEM: [&str; 11] =
    ["/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/proc", "/run", "/sbin", "/sys"];
/// The same, of which only this part is for plait.
const PROGRAMS: [&str; 2] = ["/usr", "/opt/plait"];
/// Devices, the settings of the network, and the notes about changed ones.
const WRITABLE: [&str; 7] =
    ["/dev/net/tun", "/dev/null", "/dev/pts", "/dev/tty", "/proc/self", "/proc/sys/net", "/run/plait"];

/// Options that name a file to be read, which may be replaced: its directory is readable.
const READ: [&str; 6] = ["ca", "certificate", "certificate-key", "dnssec-anchors", "key", "password-file"];
/// Options that name a file to be written, or a socket: its directory is writable.
const WRITTEN: [&str; 6] = ["access-log", "control", "log-file", "metrics", "pcap", "status-json"];

/// What the sandbox leaves.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Places {
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// Empty directories can be made and removed there.
    emptied: Vec<PathBuf>,
}

/// Puts this process, which has a single thread, and its children into the sandbox.
///
/// A server (`is_server`) only reads its keys, so that code that took it over cannot write the configuration of the next start. A client adds
/// known servers. `files` are further files that are read again at a reload.
///
/// # Errors
/// The kernel has the sandbox and refuses it. A kernel without it is named in the log.
pub(crate) fn enter(
    in_effect: &InEffect,
    (options, is_server): (&Options, bool),
    files: &[PathBuf],
) -> anyhow::Result<()> {
    let mut places = Places::of(in_effect);
    places.readable.extend(files.iter().map(|file| parent(file)));
    places.writable.extend(options.sandbox_writable.iter().cloned());
    let store = protection::store(options);
    places.readable.push(parent(&store.path("identity")));
    let known_peers = parent(store.known_peers().file());
    // A new server is remembered if an option, or an answer at the terminal, says so.
    let may_remember = in_effect.contains_key("accept-new") || stdin().is_terminal();
    let known_peers = Some(known_peers).filter(|place| !is_server && (may_remember || place.exists()));
    if is_server && options.key.is_none() && protection::is_sealed(options) {
        // It is made at the first start. The server itself names the reason if that fails.
        let _ = store.identity();
    }
    // A directory must exist to be in the sandbox.
    for directory in known_peers.into_iter().chain(own_directories(in_effect)) {
        if let Err(error) = DirBuilder::new().mode(0o700).recursive(true).create(&directory) {
            tracing::debug!(%error, directory = %directory.display(), "this directory is not in the sandbox");
        }
        places.writable.push(directory);
    }
    // The last plait removes the directory of sockets and of changed settings. Another one that ends now must not: the rules of Landlock
    // are about this directory, whatever has its name later.
    places.emptied.push(parent(&directory::own()));
    directory::hold(std::process::id());
    let status = places.restrict().context("cannot enter the sandbox of Landlock (fix: --no-sandbox)")?;
    match status {
        RulesetStatus::FullyEnforced => {}
        RulesetStatus::PartiallyEnforced => tracing::info!("the kernel has a part of Landlock only"),
        RulesetStatus::NotEnforced => {
            tracing::warn!("the kernel has no Landlock: all files of this user are within reach");
        }
    }
    deny_calls().context("cannot enter the sandbox of seccomp (fix: --no-sandbox)")
}

/// The directories of this process itself: of its control socket, of volumes, and of accounts.
fn own_directories(in_effect: &InEffect) -> Vec<PathBuf> {
    let has_caps = in_effect.contains_key("cap");
    let state = has_caps.then(usage::directory);
    let accounts =
        in_effect.get("accounts").into_iter().flatten().map(|file| parent(&accounts::place(Path::new(file))));
    [directory::own()].into_iter().chain(state).chain(accounts).collect()
}

impl Places {
    fn of(in_effect: &InEffect) -> Self {
        let files = |names: &[&str]| -> Vec<PathBuf> {
            let words = names.iter().filter_map(|name| in_effect.get(*name)).flatten();
            let files =
                words.filter(|word| *word != "-").map(|word| word.strip_prefix("unix:").unwrap_or(word));
            files.map(PathBuf::from).collect()
        };
        let mut readable: Vec<_> = SYSTEM.iter().chain(&PROGRAMS).map(PathBuf::from).collect();
        readable
            .extend(env::var_os("PATH").iter().flat_map(env::split_paths).filter(|path| path.is_absolute()));
        for file in files(&READ) {
            // A link leads to the file that counts.
            let target = file.canonicalize().ok();
            readable.extend([Some(file), target].into_iter().flatten().map(|file| parent(&file)));
        }
        let lists = in_effect.get("direct").into_iter().flatten().filter_map(|word| word.strip_prefix('@'));
        readable.extend(lists.map(|file| parent(Path::new(file))));
        let mut writable: Vec<_> = WRITABLE.iter().map(PathBuf::from).collect();
        writable.extend(files(&WRITTEN).iter().map(|file| parent(file)));
        let sockets = in_effect.get("local").into_iter().flatten().filter_map(|word| socket_of(word));
        writable.extend(sockets.map(|file| parent(&file)));
        let key_log = env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty());
        writable.extend(key_log.map(|file| parent(Path::new(&file))));
        Self { readable, writable, emptied: Vec::new() }
    }

    fn restrict(&self) -> anyhow::Result<RulesetStatus> {
        let all = AccessFs::from_all(RIGHTS);
        // Places that do not exist are left out.
        let status = Ruleset::default()
            .handle_access(all)?
            .create()?
            .add_rules(path_beneath_rules(&self.readable, AccessFs::from_read(RIGHTS)))?
            .add_rules(path_beneath_rules(&self.writable, all))?
            .add_rules(path_beneath_rules(&self.emptied, AccessFs::MakeDir | AccessFs::RemoveDir))?
            .restrict_self()?;
        Ok(status.ruleset)
    }
}

/// The directory of a file.
fn parent(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Calls of the kernel that fail with EPERM from now on.
const DENIED: [libc::c_long; 36] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
];

fn deny_calls() -> anyhow::Result<()> {
    let Ok(arch) = TargetArch::try_from(env::consts::ARCH) else {
        tracing::warn!(
            arch = env::consts::ARCH,
            "there is no list of calls for this processor: none is denied"
        );
        return Ok(());
    };
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let rules: BTreeMap<i64, _> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

/// What the kernel has of the sandbox, for `plait doctor`.
pub(crate) fn of_kernel() -> Found {
    let has = |version: ABI| {
        let rights = AccessFs::from_all(version);
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        strict.handle_access(rights).and_then(Ruleset::create).is_ok()
    };
    match (has(RIGHTS), has(ABI::V1)) {
        (true, _) => Ok("Landlock and seccomp".to_owned()),
        (false, true) => Ok("a part of Landlock, and seccomp".to_owned()),
        (false, false) => Err((
            "the kernel has no Landlock".to_owned(),
            "a kernel from 5.13 with lsm=landlock; until then services can reach all files of their user"
                .into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_an_option_names_is_in_the_sandbox_with_its_directory() {
        let of = |option: &str, word: &str| {
            Places::of(&InEffect::from([(option.to_owned(), vec![word.to_owned()])]))
        };
        let has = |places: &[PathBuf], path: &str| places.iter().any(|place| place == Path::new(path));
        assert!(has(&of("certificate", "/srv/tls/gw.pem").readable, "/srv/tls"));
        assert!(has(&of("pcap", "out.pcapng").writable, "."));
        assert!(has(&of("direct", "@/srv/lists/direct").readable, "/srv/lists"));
        assert!(has(&of("local", "/srv/app/db.sock:db:5432").writable, "/srv/app"));
        assert!(has(&of("metrics", "unix:/srv/plait/metrics.sock").writable, "/srv/plait"));
        let default = Places::of(&InEffect::new());
        assert_eq!(of("status-json", "-"), default);
        for place in ["/", "/home", "/root", "/var"] {
            assert!(!has(&default.readable, place) && !has(&default.writable, place), "{place}");
        }
    }
}
