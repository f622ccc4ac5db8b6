//! Measured points as CSV, stored beside the profile.

use marline_checksum::tuner::{Place, Point, Way};
use marline_checksum::Algorithm;
use std::path::{Path, PathBuf};

const COLUMNS: [&str; 9] = [
    "date",
    "cpu",
    "algorithm",
    "way",
    "block_bytes",
    "place",
    "bytes",
    "ns",
    "gb_per_s",
];

/// The CSV file of a profile.
pub fn path_beside(profile: &Path) -> PathBuf {
    profile.with_extension("csv")
}

/// The points as CSV.
pub fn write(points: &[Point], date: &str, cpu: &str) -> Result<String, String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    let failed = |e: csv::Error| e.to_string();
    csv.write_record(COLUMNS).map_err(failed)?;
    for p in points {
        let (way, block) = p.way.name();
        csv.write_record([
            date,
            cpu,
            p.algorithm.name(),
            way,
            &block.to_string(),
            p.place.name(),
            &p.bytes.to_string(),
            &format!("{:.2}", p.ns),
            &format!("{:.4}", p.gb_per_s()),
        ])
        .map_err(failed)?;
    }
    let bytes = csv.into_inner().map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// Parses the output of [`write`]; errors name the line.
pub fn read(text: &str) -> Result<Vec<Point>, String> {
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let headers = csv.headers().map_err(|e| e.to_string())?.clone();
    let column = |name: &str| {
        let found = headers.iter().position(|h| h == name);
        found.ok_or_else(|| format!("no column {name}"))
    };
    let (algorithm, way, block) = (column("algorithm")?, column("way")?, column("block_bytes")?);
    let (place, bytes, ns) = (column("place")?, column("bytes")?, column("ns")?);
    let mut points = Vec::new();
    for (n, row) in csv.records().enumerate() {
        let row = row.map_err(|e| e.to_string())?;
        let cell = |column: usize| row.get(column).unwrap_or("");
        let point = || {
            let block = cell(block).parse().ok()?;
            Some(Point {
                algorithm: cell(algorithm).parse::<Algorithm>().ok()?,
                way: Way::from_name(cell(way), block)?,
                place: Place::from_name(cell(place))?,
                bytes: cell(bytes).parse().ok().filter(|b| *b > 0)?,
                ns: cell(ns)
                    .parse()
                    .ok()
                    .filter(|ns: &f64| ns.is_finite() && *ns > 0.0)?,
            })
        };
        points.push(point().ok_or_else(|| format!("line {} makes no sense", n + 2))?);
    }
    Ok(points)
}

/// Reads the curves of a profile.
pub fn load(profile: &Path) -> Result<Vec<Point>, String> {
    let path = path_beside(profile);
    let at = path.display();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("{at}: {e}; `marline tune` measures the curves"))?;
    read(&text).map_err(|e| format!("{at}: {e}"))
}

/// Queries on measured points.
pub trait Curves {
    /// Nanoseconds per call, if measured.
    fn ns(&self, algorithm: Algorithm, way: Way, place: Place, bytes: usize) -> Option<f64>;
    /// (bytes, GB/s), by rising size.
    fn curve(&self, algorithm: Algorithm, way: Way, place: Place) -> Vec<(usize, f64)>;
    /// GB/s at the largest measured size up to `bytes`.
    fn rate(&self, algorithm: Algorithm, way: Way, place: Place, bytes: usize) -> Option<f64>;
}

impl Curves for [Point] {
    fn ns(&self, algorithm: Algorithm, way: Way, place: Place, bytes: usize) -> Option<f64> {
        let key = (algorithm, way, place, bytes);
        let point = self
            .iter()
            .find(|p| (p.algorithm, p.way, p.place, p.bytes) == key)?;
        Some(point.ns)
    }

    fn curve(&self, algorithm: Algorithm, way: Way, place: Place) -> Vec<(usize, f64)> {
        let key = (algorithm, way, place);
        let found = self.iter().filter(|p| (p.algorithm, p.way, p.place) == key);
        let mut curve: Vec<_> = found.map(|p| (p.bytes, p.gb_per_s())).collect();
        curve.sort_by_key(|(bytes, _)| *bytes);
        curve
    }

    fn rate(&self, algorithm: Algorithm, way: Way, place: Place, bytes: usize) -> Option<f64> {
        let curve = self.curve(algorithm, way, place);
        curve
            .iter()
            .rev()
            .find(|(b, _)| *b <= bytes)
            .map(|(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(way: Way, bytes: usize, ns: f64) -> Point {
        let (algorithm, place) = (Algorithm::Crc64Nvme, Place::Cache);
        Point {
            algorithm,
            way,
            place,
            bytes,
            ns,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let points = vec![
            point(Way::Fused, 4096, 51.25),
            point(Way::Blocked(1024), 65_536, 1700.0),
            Point {
                place: Place::Memory,
                ..point(Way::Copy, 1, 3.5)
            },
        ];
        let text = write(&points, "2026-11-21 10:00", "a, b \"c\"").unwrap();
        assert_eq!(read(&text), Ok(points));
    }

    #[test]
    fn lines_of_no_sense_are_named() {
        let good = write(&[point(Way::Fused, 64, 5.0)], "d", "c").unwrap();
        for (from, to) in [
            ("crc64-nvme", "md5"),
            ("fused", "fuzed"),
            (",64,", ",0,"),
            ("5.00", "NaN"),
        ] {
            let error = read(&good.replace(from, to)).unwrap_err();
            assert!(error.contains("line 2"), "{error}");
        }
        assert!(read("date,cpu\n1,2\n").unwrap_err().contains("algorithm"));
        assert!(read(&(good + "1,2\n")).is_err());
    }

    #[test]
    fn rates_are_those_of_the_size_or_the_next_smaller() {
        let points = [point(Way::Sum, 1000, 100.0), point(Way::Sum, 100, 20.0)];
        let rate = |bytes| points.rate(Algorithm::Crc64Nvme, Way::Sum, Place::Cache, bytes);
        assert_eq!(
            (rate(5000), rate(999), rate(99)),
            (Some(10.0), Some(5.0), None)
        );
    }
}
