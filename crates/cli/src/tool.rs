//! Running the system's own tools (`ip`, `nft`, `tc`, `unshare`, …) with errors worth reading.

use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

/// A line on standard error, which nobody may read any more (`2>&1 | head -1`): that changes
/// nothing of what we do.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "marline: {line}");
}

/// Writes what a command prints to standard output. A reader that has ended (`| head -1`) has read
/// what it wanted; what a full disk does not take is an error.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

/// The Debian package that brings a tool, for the text of an error.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "ethtool" => "ethtool",
        "unshare" | "nsenter" => "util-linux",
        _ => "the package that has it",
    }
}

/// Runs `words`, a tool and its arguments, by `command`, which starts others (`nsenter … --`), with
/// `input` on its standard input; its standard output, or an error text that has the command line
/// and what the tool said.
pub fn run_through(mut command: Command, words: &[&str], input: &str) -> Result<String, String> {
    // Where Debian has the tools of administrators, which not every user's PATH names.
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(words);
    let tool = words.first().copied().unwrap_or_default();
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
    finish(&line, tool, output)
}

/// The text for a tool that could not be started at all.
pub fn spawn_error(command: &Command, error: &std::io::Error) -> String {
    let tool = command.get_program().to_string_lossy().into_owned();
    if error.kind() == ErrorKind::NotFound {
        return not_installed(&tool);
    }
    format!("{}: {error}", describe(command))
}

fn not_installed(tool: &str) -> String {
    let package = package_of(tool);
    format!("`{tool}` is not installed (Debian: apt install {package})")
}

/// Status with which `nsenter`, as a shell, leaves when it does not find the command.
const NOT_FOUND: i32 = 127;

fn finish(line: &str, tool: &str, output: Output) -> Result<String, String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if output.status.code() == Some(NOT_FOUND) {
        return Err(not_installed(tool));
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

/// The executable that is running now.
pub fn own_path() -> Result<std::path::PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("the path of marline itself: {e}"))
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

    /// `nsenter` is there; what it is to start is not.
    #[test]
    fn a_tool_missing_behind_another_is_named_with_its_package() {
        let words = ["no-such-tool-at-all", "-x"];
        let error = run_through(Command::new("env"), &words, "").unwrap_err();
        assert!(
            error.contains("`no-such-tool-at-all` is not installed"),
            "{error}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", "exit 127"]);
        let error = run_through(command, &["ethtool", "-K"], "").unwrap_err();
        assert!(error.contains("apt install ethtool"), "{error}");
    }

    #[test]
    fn tools_of_administrators_are_looked_for_where_they_are() {
        let words = ["-c", "echo $PATH"];
        let path = run_through(Command::new("sh"), &words, "").unwrap();
        assert!(path.trim().ends_with(":/usr/sbin:/sbin"), "{path}");
    }

    #[test]
    fn a_missing_tool_is_named() {
        let error = run_through(Command::new("no-such-tool-at-all"), &[], "").unwrap_err();
        assert!(
            error.contains("`no-such-tool-at-all` is not installed"),
            "{error}"
        );
    }
}
