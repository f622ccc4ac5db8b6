//! The text of `docs/settings.md`: the list of settings, and a section on settings that both sides
//! must share.

use crate::config::kind::{Kind, SUFFIXES};
use crate::config::settings::{Setting, TABLE};

/// Section on settings that two processes must share, and on those that may differ.
const SHARED: &str = "
## Settings of both sides

Three settings must be the same in all processes, and are compared at first contact:

- `FI_MARLINE_RELIABILITY`: each side refuses the other and names both values.
- `FI_MARLINE_AUTH` and the key: both sides refuse an address of a process with another value, and
  say what differs; its packets are dropped and counted (`forged`).
- `multicast_scheme`: a communicator whose members differ has no multicast; the log names both
  values.

`FI_MARLINE_RAILS`, `FI_MARLINE_SHM` and `FI_MARLINE_VERBS_PATHS` may differ as long as some rail of
one side reaches one of the other; if none does, the peer is refused with the lists of both.
`FI_MARLINE_VERBS_READS` acts where both sides have it on. All other settings concern their own
process; peers agree on the checksum.
";

/// The head of the second list.
const EXPERIMENTS: &str = "
## Experiments

Keys of `FI_MARLINE_TEST`, for comparisons and measurements: `FI_MARLINE_TEST=gso=off,gro=off`. Jobs
need none of them. This version still reads the former variables (`FI_MARLINE_GSO`), with a notice.

";

/// The text of `docs/settings.md`.
pub fn document() -> String {
    let mut out = String::from(
        "# Settings\n\n\
         Environment variables of the provider, read once when an engine opens (`fi_info -e`\n\
         lists them too). An empty value means the default. Numbers of bytes may end in K, M or G\n\
         (KiB, MiB, GiB). An unknown name is reported, with the nearest one of this list. Each\n\
         entry has the default, and in brackets what is allowed; switches are `on` or `off`.\n\n\
         `crates/engine/src/config/settings.rs` makes this file: after a change there run\n\
         `MARLINE_BLESS=1 cargo test -p marline-engine document_is_current`.\n\n",
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

/// The lines of a setting in its list.
fn line(row: &Setting) -> String {
    let name = match row.test {
        true => row.name.to_owned(),
        false => row.variable(),
    };
    let default = match row.default {
        "" => String::new(),
        text => format!("={text}"),
    };
    let allowed = match row.kind {
        Kind::Switch | Kind::Text => String::new(),
        Kind::Number { min, max } => format!(" ({min} to {max})"),
        Kind::Bytes { max: u64::MAX, .. } => " (bytes)".to_owned(),
        kind => format!(" ({})", kind.allowed().replace(SUFFIXES, "")),
    };
    wrap(&format!("- `{name}{default}`{allowed}: {}", row.help))
}

/// An entry of a list in lines of at most 100 columns.
fn wrap(entry: &str) -> String {
    let mut lines = vec![String::new()];
    for word in entry.split(' ') {
        let last = lines.last_mut().expect("at least one line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= 100 {
            *last += " ";
            *last += word;
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.join("\n") + "\n"
}
