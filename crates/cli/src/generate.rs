//! `marline generate DIR` (hidden): writes man pages and shell completions, from the command's
//! arguments and the table of settings, in the layout of `share/`.

use crate::outcome::Uncoded;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{bold, roman, Roff};
use marline_engine::settings::TABLE;
use std::path::{Path, PathBuf};

/// Arguments of `generate`.
#[derive(clap::Args)]
pub struct GenerateArgs {
    /// The directory to write to.
    dir: PathBuf,
}

/// Directory and file name of the completion of each shell.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "marline"),
    (Shell::Zsh, "zsh/site-functions", "_marline"),
    (Shell::Fish, "fish/vendor_completions.d", "marline.fish"),
];

/// Writes all files.
pub fn main(args: &GenerateArgs, command: &Command) -> Uncoded {
    write_all(&args.dir, command).map_err(|e| format!("{}: {e}", args.dir.display()))?;
    Ok(0)
}

fn write_all(dir: &Path, command: &Command) -> std::io::Result<()> {
    write_pages(&folder(dir.join("man/man1"))?, command)?;
    std::fs::write(
        folder(dir.join("man/man7"))?.join("fi_marline.7"),
        provider_page(),
    )?;
    for (shell, place, name) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "marline", &mut text);
        std::fs::write(folder(dir.join(place))?.join(name), text)?;
    }
    Ok(())
}

/// Writes a page for each command.
fn write_pages(dir: &Path, command: &Command) -> std::io::Result<()> {
    clap_mangen::generate_to(command.clone(), dir)?;
    for page in std::fs::read_dir(dir)? {
        // The text after the options is already in lines.
        let path = page?.path();
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replace(".SH EXTRA\n", ".SH NOTES\n.nf\n"))?;
    }
    Ok(())
}

fn folder(path: PathBuf) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// fi_marline(7): the provider and its settings.
fn provider_page() -> String {
    let mut page = Roff::new();
    page.control(
        "TH",
        [
            "fi_marline",
            "7",
            "",
            &format!("marline {}", marline_version::TEXT),
        ],
    );
    page.control("SH", ["NAME"]);
    page.text([roman("fi_marline - the Marline provider of libfabric")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "Marline carries messages over several networks at once, exactly once and bit for bit, \
         through loss, corruption and dead links. An MPI loads it through libfabric; marline(1) \
         prepares that.",
    )]);
    page.control("SH", ["ENVIRONMENT"]);
    page.text([roman(
        "All variables are read once when an engine opens. An empty value means the default.",
    )]);
    for row in TABLE {
        page.control("TP", []);
        page.text([bold(row.variable())]);
        let default = match row.default {
            "" => "empty",
            text => text,
        };
        let allowed = row.kind.allowed();
        page.text([roman(format!(
            "{} (default: {default}; {allowed})",
            row.help
        ))]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(
        "marline(1), marline-run(1), marline-exec(1), fabric(7)",
    )]);
    page.to_roff()
}
