//! Man pages and completions written by `marline generate`.

use crate::support;

use support::{marline, succeed, Dir};

/// The commands that `marline --help` lists.
fn commands(dir: &Dir) -> Vec<String> {
    let help = succeed(marline(&dir.0).arg("--help"));
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_command_has_a_page_and_each_shell_a_completion() {
    let dir = Dir::new("generate");
    succeed(marline(&dir.0).arg("generate").arg(&dir.0));
    let read = |name: &str| std::fs::read_to_string(dir.0.join(name)).unwrap();
    let commands = commands(&dir);
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        assert!(read(&format!("man/man1/marline-{command}.1")).contains("SYNOPSIS"));
    }
    // The text after the options keeps its lines.
    assert!(read("man/man1/marline-exec.1").contains(".SH NOTES\n.nf\n"));
    let page = read("man/man7/fi_marline.7");
    for row in marline_engine::settings::TABLE {
        assert!(page.contains(&row.variable()), "{}", row.name);
    }
    let bash = "bash-completion/completions/marline";
    for name in [
        bash,
        "zsh/site-functions/_marline",
        "fish/vendor_completions.d/marline.fish",
    ] {
        assert!(read(name).contains("exec"), "{name}");
    }
}
