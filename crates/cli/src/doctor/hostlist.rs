//! Lists of hosts: names with commas, in Slurm's short form (`n[1-3,07]`), or in a file.

/// Most hosts of one list.
const HOSTS_MAX: usize = 10_000;

/// The hosts that a list names, each once, in order. A list with a slash is a file that has such
/// lists in its lines; text after `#`, and numbers of slots after a space or colon are ignored.
pub fn hosts(list: &str) -> Result<Vec<String>, String> {
    let text = match list.contains('/') {
        true => std::fs::read_to_string(list).map_err(|e| format!("--hosts {list}: {e}"))?,
        false => list.to_owned(),
    };
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let line = line.split([' ', '\t', ':']).next().unwrap_or_default();
        for name in expand(line)? {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    match found.len() {
        0 => Err(format!("--hosts {list}: no host is named")),
        _ => Ok(found),
    }
}

/// The names in a line.
fn expand(line: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for word in split(line)? {
        names.extend(one(word)?);
        if names.len() > HOSTS_MAX {
            return Err(format!("{line}: more than {HOSTS_MAX} hosts"));
        }
    }
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!("{name:?} is no name of a host")),
        None => Ok(names),
    }
}

/// Returns whether a name can be handed to a program without being taken for an option or for
/// something else than one word of a shell.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    !name.starts_with('-') && name.chars().all(plain)
}

/// The words between commas outside of brackets.
fn split(line: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match (c, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[' | ']', _) => return Err(format!("{line}: brackets do not match")),
            (',', false) => {
                words.push(&line[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("{line}: brackets do not match"));
    }
    words.push(&line[start..]);
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// The names of one word, which may have several brackets.
fn one(word: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = word.split_once('[') else {
        return Ok(vec![word.to_owned()]);
    };
    let (inside, after) = rest.split_once(']').unwrap_or((rest, ""));
    let ends = one(after)?;
    let mut names = Vec::new();
    for part in inside.split(',') {
        for number in range(part).ok_or_else(|| format!("{word}: {part:?} is no range"))? {
            names.extend(ends.iter().map(|end| format!("{before}{number}{end}")));
        }
        if names.len() > HOSTS_MAX {
            return Err(format!("{word}: more than {HOSTS_MAX} hosts"));
        }
    }
    Ok(names)
}

/// The numbers of `3` or `08-11`, as wide as the first.
fn range(text: &str) -> Option<Vec<String>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(from) || !digits(to) {
        return None;
    }
    let (least, most): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
    let width = from.len();
    let last = most.min(least.saturating_add(HOSTS_MAX));
    let numbers = (least..=last).map(|n| format!("{n:0width$}"));
    (least <= most).then(|| numbers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &str) -> String {
        hosts(list).map_or_else(|why| why, |names| names.join(" "))
    }

    #[test]
    fn lists_are_expanded_in_order() {
        assert_eq!(all("a,b,a, c"), "a b");
        assert_eq!(all("n[1-3]"), "n1 n2 n3");
        assert_eq!(all("n[08-10,7]-ib,x"), "n08-ib n09-ib n10-ib n7-ib x");
        assert_eq!(all("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
        assert_eq!(all("me@host.domain"), "me@host.domain");
    }

    #[test]
    fn malformed_lists_are_refused() {
        for (list, why) in [
            ("", "no host is named"),
            ("n[1-3", "brackets do not match"),
            ("n]1[", "brackets do not match"),
            ("n[3-1]", "is no range"),
            ("n[a]", "is no range"),
            ("n[1-999999]", "more than 10000"),
            ("-oProxyCommand=x", "is no name of a host"),
            ("a;b", "is no name of a host"),
            ("/nowhere/hosts", "/nowhere/hosts: No such file"),
        ] {
            assert!(all(list).contains(why), "{list}: {}", all(list));
        }
    }

    #[test]
    fn a_file_has_hosts_in_its_lines() {
        let file = std::env::temp_dir().join(format!("marline-hosts-{}", std::process::id()));
        std::fs::write(
            &file,
            "# the first rack\nn[1-2] slots=4\nn3:2\n\nn1 # again\n",
        )
        .unwrap();
        assert_eq!(all(&file.to_string_lossy()), "n1 n2 n3");
        std::fs::remove_file(&file).unwrap();
    }
}
