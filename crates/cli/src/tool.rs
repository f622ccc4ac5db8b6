//! Runs the system's tools (`ip`, `nft`, `tc`, `unshare`, …) with informative errors.

use crate::outcome::Failure;
use marline_codes::{Code, Message};
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

/// Prints a message with its code to standard error.
pub fn say(message: &Message) {
    note(&message.to_string());
}

/// Prints a line about what the command does to standard error: no warning and no error. A closed
/// standard error (`2>&1 | head -1`) is ignored.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "marline: {line}");
}

/// Prints a command's result to standard output. A closed pipe (`| head -1`) is no error; a full
/// disk is an error.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

/// The Debian package of a tool, for error texts.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "ethtool" => "ethtool",
        "unshare" | "nsenter" => "util-linux",
        _ => "the package that has it",
    }
}

/// Runs `words`, a tool and its arguments, through `command` (`nsenter … --`) with `input` on
/// standard input. Returns the standard output, or an error with the command line and the tool's
/// messages.
pub fn run_through(mut command: Command, words: &[&str], input: &str) -> Result<String, Failure> {
    // Debian's directories of administrative tools, often missing in users' PATH.
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(words);
    let tool = words.first().copied().unwrap_or_default();
    let line = describe(&command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| no_tool(&command, &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that exits early closes the pipe; its exit status below tells the reason.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|e| format!("{line}: {e}"))?;
    finish(&line, tool, output)
}

/// The error for a tool of the system that could not be started.
pub fn no_tool(command: &Command, error: &std::io::Error) -> Failure {
    let text = spawn_error(command, error);
    match error.kind() {
        ErrorKind::NotFound => Failure::with(Code::ToolMissing, text),
        _ => text.into(),
    }
}

/// The error for a program that could not be started.
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

/// Exit status of `nsenter`, as of shells, for a missing command.
const NOT_FOUND: i32 = 127;

fn finish(line: &str, tool: &str, output: Output) -> Result<String, Failure> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if output.status.code() == Some(NOT_FOUND) {
        return Err(Failure::with(Code::ToolMissing, not_installed(tool)));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed ({}): {}", output.status, said.trim()).into())
}

/// The command line in shell syntax.
pub fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&quote(&arg.to_string_lossy()));
    }
    line
}

/// Quotes a word for a POSIX shell, if necessary.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Writes a new file for temporary use or to be renamed. Replaces an older file of this name and
/// follows no link: in a folder that other users may write, a link could lead anywhere.
pub fn write_new(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::File::create_new(path)?;
    std::io::Write::write_all(&mut file, bytes)
}

/// The running executable.
pub fn own_path() -> Result<std::path::PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("the path of marline itself: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `tune` wrote through a link that another user had planted under the name of its
    /// temporary file.
    #[test]
    fn new_files_replace_links() {
        let dir = std::env::temp_dir().join(format!("marline-new-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (link, victim) = (dir.join("link"), dir.join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        write_new(&link, b"text").unwrap();
        write_new(&link, b"more").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert_eq!(std::fs::read(&link).unwrap(), b"more");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_words_that_a_shell_would_split_are_quoted() {
        assert_eq!(quote("a/b-c=1"), "a/b-c=1");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $x"), r"'it'\''s $x'");
    }

    /// `nsenter` exists, but the tool that it should start does not.
    #[test]
    fn a_tool_missing_behind_another_is_named_with_its_package() {
        let words = ["no-such-tool-at-all", "-x"];
        let error = run_through(Command::new("env"), &words, "").unwrap_err();
        assert!(
            error
                .text()
                .contains("`no-such-tool-at-all` is not installed"),
            "{error:?}"
        );
        assert_eq!(error.code(), Some(Code::ToolMissing));
        let mut command = Command::new("sh");
        command.args(["-c", "exit 127"]);
        let error = run_through(command, &["ethtool", "-K"], "").unwrap_err();
        assert!(error.text().contains("apt install ethtool"), "{error:?}");
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
            error
                .text()
                .contains("`no-such-tool-at-all` is not installed"),
            "{error:?}"
        );
        assert_eq!(error.code(), Some(Code::ToolMissing));
    }
}
