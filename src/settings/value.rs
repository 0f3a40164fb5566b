//! Values of settings as people write them: sizes, ages, shares, switches.

use std::ffi::OsStr;
use std::time::Duration;

/// Suffixes of sizes, in bytes; the first of a size is how it is shown.
const SIZE_UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("k", 1_000),
    ("MB", 1_000_000),
    ("M", 1_000_000),
    ("GB", 1_000_000_000),
    ("G", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Suffixes of ages, in seconds.
const AGE_UNITS: [(&str, u64); 5] =
    [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 7 * 86_400)];

/// Whether a switch is on: set to something that does not mean no.
pub(super) fn parse_switch(value: &OsStr) -> bool {
    !["", "0", "false", "no", "off"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A size in bytes: `5GB`, `500 MiB`, `1.5G`; decimal unless it says `i`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_size(value: &OsStr) -> Result<u64, String> {
    let wrong = || "not a size such as 5GB, 500MiB or 0".to_owned();
    scaled(value, &SIZE_UNITS).ok_or_else(wrong)
}

/// An age: `30d`, `12h`, `2w`, `90s`; 0 means none.
///
/// # Errors
/// What is wrong with it.
pub fn parse_age(value: &OsStr) -> Result<Duration, String> {
    if value == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || "not an age such as 30d, 12h or 0".to_owned();
    scaled(value, &AGE_UNITS).map(Duration::from_secs).ok_or_else(wrong)
}

/// A share of 0 to 100 per cent, with or without its sign.
///
/// # Errors
/// What is wrong with it.
pub fn parse_percent(value: &OsStr) -> Result<u8, String> {
    let text = value.to_str().map(|text| text.trim().trim_end_matches('%').trim_end());
    let percent = text.and_then(|text| text.parse().ok()).filter(|&percent| percent <= 100);
    percent.ok_or_else(|| "not a share such as 5%".to_owned())
}

/// A number with at most three decimals, and a unit.
fn scaled(value: &OsStr, units: &[(&str, u64)]) -> Option<u64> {
    let text = value.to_str()?.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let unit = unit.trim();
    let factor = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
    if decimals.is_empty() || decimals.len() > 3 {
        return None;
    }
    let thousandths = decimals.parse::<u64>().ok()? * 10_u64.pow(3 - decimals.len() as u32);
    let fraction = factor.checked_mul(thousandths)? / 1000;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(fraction)
}

/// A size for a reader: `4.7 MB`.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let size = bytes as f64;
    match units.iter().find(|(_, factor)| size >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", size / factor),
        None => format!("{bytes} B"),
    }
}

/// A time for a reader: `3.2 s`, `12 min`.
#[must_use]
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A size as it would be written, without loss.
pub(super) fn exact_bytes(bytes: u64) -> String {
    if bytes == 0 {
        return "0".to_owned();
    }
    let fits = |(name, factor): &&(&str, u64)| name.len() != 1 && bytes.is_multiple_of(*factor);
    let (unit, factor) =
        SIZE_UNITS.iter().filter(fits).max_by_key(|(_, factor)| *factor).expect("1 always fits");
    format!("{}{unit}", bytes / factor)
}

/// An age as it would be written, without loss.
pub(super) fn exact_age(age: Duration) -> String {
    let seconds = age.as_secs();
    if seconds == 0 {
        return "0".to_owned();
    }
    let fits = |(name, factor): &&(&str, u64)| *name != "w" && seconds.is_multiple_of(*factor);
    let (unit, factor) = AGE_UNITS.iter().rev().find(fits).expect("1 always fits");
    format!("{}{unit}", seconds / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("4096", 4096, "4KiB"),
            ("5GB", 5_000_000_000, "5GB"),
            ("5g", 5_000_000_000, "5GB"),
            ("1.5 GB", 1_500_000_000, "1500MB"),
            ("500 MiB", 500 << 20, "500MiB"),
            ("2k", 2000, "2kB"),
            ("1234567", 1_234_567, "1234567"),
        ] {
            assert_eq!(parse_size(OsStr::new(text)), Ok(bytes), "{text}");
            assert_eq!(exact_bytes(bytes), shown);
        }
        for text in ["", "GB", "-1", "5X", "1.2345GB", "1.GB", "99999999999999TB", "1 2", "٣GB"] {
            assert!(parse_size(OsStr::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_and_shares() {
        for (text, seconds, shown) in
            [("0", 0, "0"), ("90s", 90, "90s"), ("36h", 129_600, "36h"), ("2w", 1_209_600, "14d")]
        {
            assert_eq!(parse_age(OsStr::new(text)), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(exact_age(Duration::from_secs(seconds)), shown);
        }
        assert!(parse_age(OsStr::new("30")).is_err());
        assert_eq!(parse_percent(OsStr::new("5%")), Ok(5));
        assert_eq!(parse_percent(OsStr::new("100")), Ok(100));
        assert!(parse_percent(OsStr::new("101")).is_err());
        assert!(parse_percent(OsStr::new("%")).is_err());
    }

    #[test]
    fn values_for_readers() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(4_700_000), "4.7 MB");
        assert_eq!(human_duration(Duration::from_millis(640)), "640 ms");
        assert_eq!(human_duration(Duration::from_secs(600)), "10 min");
    }
}
