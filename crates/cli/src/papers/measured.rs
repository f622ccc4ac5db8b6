//! Measured message times to compare with the model, from CSV in the format of `bench/record`.

/// The times of one implementation.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Contender (and test, if the file has several).
    pub name: String,
    /// (bytes, median microseconds one way), by rising bytes.
    pub points: Vec<(usize, f64)>,
}

/// Reads rows with `bytes`, `value` and `unit`: microseconds one way (`us`), or a rate of
/// successive messages (`GB/s`). Columns `contender` and `test`, if present, name the series. Rows
/// with other units are skipped; errors name the line.
pub fn read(text: &str) -> Result<Vec<Series>, String> {
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let headers = csv.headers().map_err(|e| e.to_string())?.clone();
    let find = |name: &str| headers.iter().position(|h| h == name);
    let need = |name: &str| find(name).ok_or_else(|| format!("no column {name}"));
    let (bytes, value, unit) = (need("bytes")?, need("value")?, need("unit")?);
    let names: Vec<usize> = ["contender", "test"].into_iter().filter_map(find).collect();
    let mut all: Vec<(String, usize, Vec<f64>)> = Vec::new();
    for (n, row) in csv.records().enumerate() {
        let row = row.map_err(|e| e.to_string())?;
        let cell = |column: usize| row.get(column).unwrap_or("");
        let wrong = |what: &str| format!("line {}: {what} makes no sense", n + 2);
        let len: usize = cell(bytes).parse().map_err(|_| wrong("bytes"))?;
        let number: f64 = cell(value).parse().map_err(|_| wrong("value"))?;
        if !number.is_finite() || number <= 0.0 {
            return Err(wrong("value"));
        }
        let us = match cell(unit) {
            "us" => number,
            "GB/s" => len as f64 / number / 1e3,
            _ => continue,
        };
        let name = names.iter().map(|c| cell(*c)).collect::<Vec<_>>().join(" ");
        match all
            .iter_mut()
            .find(|(known, l, _)| *known == name && *l == len)
        {
            Some((_, _, samples)) => samples.push(us),
            None => all.push((name, len, vec![us])),
        }
    }
    Ok(series(all))
}

fn series(all: Vec<(String, usize, Vec<f64>)>) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    for (name, bytes, mut samples) in all {
        samples.sort_by(f64::total_cmp);
        let point = (bytes, samples[samples.len() / 2]);
        match found.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => found.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    for series in &mut found {
        series.points.sort_by_key(|(bytes, _)| *bytes);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_medians_by_contender_and_size() {
        let text = "date,contender,test,bytes,value,unit\n\
                    d,marline,netpipe,1024,10,us\n\
                    d,marline,netpipe,8,3,us\n\
                    d,marline,netpipe,8,9,us\n\
                    d,marline,netpipe,8,4,us\n\
                    d,mpich tcp,netpipe,1000000,2,GB/s\n\
                    d,marline,rate,8,2,M/s\n";
        let series = read(text).unwrap();
        assert_eq!(
            series,
            [
                Series {
                    name: "marline netpipe".to_owned(),
                    points: vec![(8, 4.0), (1024, 10.0)]
                },
                Series {
                    name: "mpich tcp netpipe".to_owned(),
                    points: vec![(1_000_000, 500.0)]
                },
            ]
        );
    }

    #[test]
    fn three_columns_suffice_and_bad_rows_are_named() {
        let series = read("bytes,value,unit\n8,3.5,us\n").unwrap();
        assert_eq!(series[0].points, [(8, 3.5)]);
        for (text, said) in [
            ("bytes,value\n", "unit"),
            ("bytes,value,unit\n8,3,us\n8,fast,us\n", "line 3"),
            ("bytes,value,unit\n-8,3,us\n", "line 2"),
            ("bytes,value,unit\n8,0,us\n", "line 2"),
            ("bytes,value,unit\n8,3\n", ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(read("bytes,value,unit\n"), Ok(Vec::new()));
    }
}
