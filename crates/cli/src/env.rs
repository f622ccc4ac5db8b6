//! `marline env`: the settings of `marline run`, for a job script.

use crate::mpi::{self, Fabric};
use crate::run::{variables, Common};
use crate::{provider, settings, tool};

/// Arguments of `env`.
#[derive(clap::Args)]
pub struct EnvArgs {
    #[command(flatten)]
    common: Common,
    /// mpiexec, by name or path, or the MPI's directory.
    #[arg(long, default_value = "mpiexec")]
    mpi: String,
    /// As `export` lines for a POSIX shell: eval "$(marline env --shell)".
    #[arg(long, conflicts_with = "json")]
    shell: bool,
    /// As a JSON object.
    #[arg(long)]
    json: bool,
}

/// Prints the settings.
pub fn main(args: &EnvArgs) -> crate::Outcome {
    let mpi = mpi::detect(&args.mpi)?;
    let dir = provider::find_dir(args.common.provider_dir.as_deref())?;
    let environment = settings::environment();
    settings::check(&environment)?;
    if args.common.verbose {
        tool::say(&mpi.describe());
    }
    let set = variables(mpi.kind, &Fabric::Marline(dir), &args.common, &environment);
    let lines: Vec<String> = set
        .iter()
        .map(|(name, value)| line(args, name, value))
        .collect();
    match args.json {
        true => println!("{{\n{}\n}}", lines.join(",\n")),
        false => println!("{}", lines.join("\n")),
    }
    Ok(0)
}

fn line(args: &EnvArgs, name: &str, value: &str) -> String {
    if args.json {
        return format!("  {}: {}", json_string(name), json_string(value));
    }
    let export = if args.shell { "export " } else { "" };
    let value = if args.shell {
        tool::quote(value)
    } else {
        value.to_owned()
    };
    format!("{export}{name}={value}")
}

fn json_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(json_string("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
