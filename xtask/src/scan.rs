//! A minimal lexer for Rust that separates code from comments and strings, and finds the beginning
//! and end of functions.

/// The lines of a source with comments blanked and strings and characters emptied.
pub(crate) fn code_lines(text: &str) -> Vec<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = comment(rest)
            .or_else(|| raw_string(rest, &out))
            .or_else(|| quoted(rest))
            .unwrap_or(0);
        if skipped == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        // Keeps line numbers.
        out.push(' ');
        out.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    out.lines().map(str::to_owned).collect()
}

/// Length of a comment at the start of `s`.
fn comment(s: &str) -> Option<usize> {
    if s.starts_with("//") {
        return Some(s.find('\n').unwrap_or(s.len()));
    }
    if !s.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < s.len() {
        if s[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if s[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += s[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(s.len())
}

/// Length of a raw string at the start of `s`.
fn raw_string(s: &str, before: &str) -> Option<usize> {
    let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let body = s.strip_prefix("br").or_else(|| s.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    if in_word && !before.ends_with('b') || !body[hashes..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let from = s.len() - body.len() + hashes + 1;
    let end = s[from..].find(&close).map(|at| from + at + close.len());
    Some(end.unwrap_or(s.len()))
}

/// Length of a string or character at the start of `s`; `None` for a lifetime.
fn quoted(s: &str) -> Option<usize> {
    let quote = s.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    if quote == '\'' {
        let mut inner = s[1..].chars();
        let (first, second) = (inner.next()?, inner.next());
        if first != '\\' && second != Some('\'') {
            return None;
        }
    }
    let mut escaped = false;
    for (at, c) in s.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(s.len())
}

/// A function's name, its first line (from 0), and its number of lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// All functions with a body, including nested ones.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let mut found = Vec::new();
    // Open functions: name, line, and the depth of braces outside the body.
    let mut open: Vec<(String, usize, usize)> = Vec::new();
    let mut awaited: Option<(String, usize)> = None;
    let (mut depth, mut brackets) = (0, 0);
    for (at, line) in code_lines(text).iter().enumerate() {
        for (i, c) in line.char_indices() {
            match c {
                'f' => {
                    if let Some(name) = function_name(line, i) {
                        awaited = Some((name, at));
                    }
                }
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                // A declaration without a body; not the `;` of an array type.
                ';' if brackets == 0 => awaited = None,
                '{' => {
                    open.extend(awaited.take().map(|(name, line)| (name, line, depth)));
                    depth += 1;
                }
                '}' => {
                    depth -= 1;
                    if open.last().is_some_and(|f| f.2 == depth) {
                        found.extend(open.pop().map(|(name, line, _)| Function {
                            name,
                            line,
                            lines: at + 1 - line,
                        }));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// The name of the function whose `fn` begins at `at`.
fn function_name(line: &str, at: usize) -> Option<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let before = line[..at].chars().next_back();
    let rest = line[at..].strip_prefix("fn ")?;
    let name: String = rest.trim_start().chars().take_while(|c| word(*c)).collect();
    (!before.is_some_and(word) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "a /* { /* { */ */ b\n// {\nc \"{\\\"{\" d '{' '\\'' e<'a> r#\"{\"\n{\"# f";
        let code = code_lines(text).join("\n");
        assert!(!code.contains('{'), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        for word in ["a", "b", "c", "d", "e<'a>", "f"] {
            assert!(code.contains(word), "{word} in {code}");
        }
    }

    #[test]
    fn functions_are_measured() {
        let text = "trait T {\n    fn none(&self) -> [u8; 4];\n}\n\
                    fn outer(\n    a: u8,\n) {\n    fn inner() {\n    }\n    let x = || {};\n}\n";
        let of = |name: &str, line, lines| Function {
            name: name.to_owned(),
            line,
            lines,
        };
        assert_eq!(functions(text), [of("inner", 6, 2), of("outer", 3, 7)]);
    }
}
