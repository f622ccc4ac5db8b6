//! Tables as text.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// A table with `gap` spaces between its columns, of which the first `left` ones stand to the left
/// and the others to the right.
pub fn table(
    heads: &[&str],
    (left, gap): (usize, u16),
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(heads);
    for row in rows {
        table.add_row(row);
    }
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if n == 0 { 0 } else { gap }, 0));
        column.set_cell_alignment(match n < left {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        });
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "1"], ["größer", "12345"]].map(|row| row.map(str::to_owned));
        let text = table(&["name", "n"], (1, 2), rows);
        assert_eq!(text, "name        n\na           1\ngrößer  12345\n");
    }
}
