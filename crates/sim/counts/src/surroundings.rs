//! The surroundings that a count depends on, other than our code. In different surroundings, counts are not comparable.

use anyhow::{Context, ensure};
use core::fmt;
use std::process::Command;

/// Compiler, library, instrument and processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Surroundings {
    /// The compiler of the program.
    pub(crate) rustc: String,
    /// The C library, which allocates and copies.
    pub(crate) libc: String,
    /// The counting program. It determines the instructions that a program may use, and so the code path of the
    /// cryptography: never AVX-512.
    pub(crate) valgrind: String,
    /// The processor and its extensions, as seen from inside.
    pub(crate) machine: String,
}

impl Surroundings {
    /// Reads the current surroundings; `machine` is the text of [`tell_machine`].
    pub(crate) fn look(machine: String) -> anyhow::Result<Self> {
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        Ok(Self {
            rustc: answer(&rustc, "--version")?,
            libc: answer("getconf", "GNU_LIBC_VERSION")?,
            valgrind: answer("valgrind", "--version")?,
            machine,
        })
    }

    /// Each with its name.
    pub(crate) fn rows(&self) -> [(&'static str, &str); 4] {
        let Self { rustc, libc, valgrind, machine } = self;
        [("rustc", rustc), ("libc", libc), ("valgrind", valgrind), ("machine", machine)]
    }
}

impl fmt::Display for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows().iter().try_for_each(|(name, value)| writeln!(f, "{name}: {value}"))
    }
}

fn answer(program: &str, question: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(question).output().with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program} {question}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Prints the processor that the program finds itself on.
pub(crate) fn tell_machine() {
    print!("{}", std::env::consts::ARCH);
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! tell {
            ($($name:tt)*) => {
                $(if std::arch::is_x86_feature_detected!($name) { print!(" {}", $name); })*
            };
        }
        tell!("sse4.2" "aes" "pclmulqdq" "avx" "avx2" "bmi2" "sha" "vaes" "avx512f");
    }
    println!();
}
