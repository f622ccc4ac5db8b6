//! Running the system's own tools (`ip`, `nft`, `tc`, `unshare`, …) with errors worth reading.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The Debian package that brings a tool, for the text of an error.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "unshare" | "nsenter" => "util-linux",
        _ => "the package that has it",
    }
}

/// Runs `command` with `input` on its standard input; its standard output, or an error text that
/// has the command line and what the tool said.
pub fn run(mut command: Command, input: &str) -> Result<String, String> {
    let line = describe(&command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| spawn_error(&command, &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that dies early closes the pipe; its exit status below says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|e| format!("{line}: {e}"))?;
    finish(&line, output)
}

/// The text for a tool that could not be started at all.
pub fn spawn_error(command: &Command, error: &std::io::Error) -> String {
    let tool = command.get_program().to_string_lossy().into_owned();
    if error.kind() == std::io::ErrorKind::NotFound {
        let package = package_of(&tool);
        return format!("`{tool}` is not installed (Debian: apt install {package})");
    }
    format!("{}: {error}", describe(command))
}

fn finish(line: &str, output: Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "`{line}` failed ({}): {}",
        output.status,
        said.trim()
    ))
}

/// The command line as a person would type it.
pub fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&quote(&arg.to_string_lossy()));
    }
    line
}

/// Quotes a word for a POSIX shell, only when it needs it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_what_a_shell_would_split() {
        assert_eq!(quote("a/b-c=1"), "a/b-c=1");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $x"), r"'it'\''s $x'");
    }

    #[test]
    fn a_missing_tool_is_named() {
        let error = run(Command::new("no-such-tool-at-all"), "").unwrap_err();
        assert!(
            error.contains("`no-such-tool-at-all` is not installed"),
            "{error}"
        );
    }
}
