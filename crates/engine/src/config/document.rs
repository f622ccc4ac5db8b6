//! The text of `docs/settings.md`: the table of settings, and a section on settings that both sides
//! must share.

use crate::config::kind::SUFFIXES;
use crate::config::settings::{Setting, TABLE};

/// Section on settings that two processes must share, and on those that may differ.
const SHARED: &str = "
## Settings of both sides

Three settings must be the same in all processes, and are compared at first contact:

- `FI_MARLINE_RELIABILITY`: each side refuses the other, which names both values; operations that
  name the peer end with an error.
- `FI_MARLINE_AUTH` and the key: an address of a process with another value is refused, by both
  sides, with what differs; packets that come all the same are dropped and counted (`forged`).
- `multicast_scheme`: a communicator whose members differ has no multicast; its
  broadcasts go from rank to rank, and the log names both values.

`FI_MARLINE_RAILS`, `FI_MARLINE_SHM` and `FI_MARLINE_VERBS_PATHS` may differ as long as some rail of
one side reaches one of the other; if none does, the peer is refused with the lists of both.
`FI_MARLINE_VERBS_READS` acts where both sides have it on. Peers agree on the checksum, and learn
from packets and addresses which messages have none (`FI_MARLINE_CHECKSUM_MIN_BYTES`, `_MAX_BYTES`,
`checksum_rails`), the size of packets (`FI_MARLINE_MTU`), credit, native rails and direct writes.
All other settings concern their own process.
";

/// The head of the second table.
const EXPERIMENTS: &str = "
## Experiments

Keys of `FI_MARLINE_TEST`, for comparisons and measurements: `FI_MARLINE_TEST=gso=off,gro=off`. Jobs
need none of them. This version still reads the former variables (`FI_MARLINE_GSO`), with a notice.

| key | default | allowed | meaning |
|---|---|---|---|
";

/// The text of `docs/settings.md`.
pub fn document() -> String {
    let mut out = String::from(
        "# Settings\n\n\
         Environment variables of the provider, read once when an engine opens (`fi_info -e`\n\
         lists them too). An empty value means the default. Numbers of bytes may end in K, M or G\n\
         (KiB, MiB, GiB). An unknown name is reported, with the nearest one of this table. This\n\
         file is made from the table in `crates/engine/src/config/settings.rs`: after a change\n\
         there run\n\
         `MARLINE_BLESS=1 cargo test -p marline-engine document_is_current`.\n\n\
         | variable | default | allowed | meaning |\n|---|---|---|---|\n",
    );
    for row in TABLE.iter().filter(|row| !row.test) {
        out += &line(row);
    }
    out += EXPERIMENTS;
    for row in TABLE.iter().filter(|row| row.test) {
        out += &line(row);
    }
    out + SHARED
}

/// The line of a setting in its table.
fn line(row: &Setting) -> String {
    let default = match row.default {
        "" => "(empty)".to_owned(),
        text => format!("`{text}`"),
    };
    let name = match row.test {
        true => row.name.to_owned(),
        false => row.variable(),
    };
    let allowed = row.kind.allowed().replace(SUFFIXES, "");
    let help = row.help;
    format!("| `{name}` | {default} | {allowed} | {help} |\n")
}
