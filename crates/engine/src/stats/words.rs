//! The words of a page: one description of a row serves its writer and its reader.

use super::Counters;

/// Words of a text, which is cut to fit: an IPv6 address with port and brackets has at most 47
/// bytes.
pub(super) const TEXT_WORDS: usize = 6;

/// A value with a place on a page.
pub(super) trait Words: Sized {
    /// Gives the value's words in order.
    fn put(&self, to: &mut impl FnMut(u64));
    /// The inverse of [`Words::put`]. Nothing read is trusted: any words give a value, and `from`
    /// remembers whether words were missing or invalid.
    fn take(from: &mut Source<'_>) -> Self;
}

/// The number of a value's words.
pub(super) fn count(value: &impl Words) -> usize {
    let mut words = 0;
    value.put(&mut |_| words += 1);
    words
}

/// Words to read values from; missing words read as 0.
pub(super) struct Source<'a> {
    words: std::slice::Iter<'a, u64>,
    /// True after the first missing word.
    pub(super) short: bool,
    /// True after the first word out of its type's range.
    pub(super) invalid: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(words: &'a [u64]) -> Source<'a> {
        Source {
            words: words.iter(),
            short: false,
            invalid: false,
        }
    }

    /// A word's value; `None` is an invalid word, which reads as the default.
    pub(super) fn valid<T: Default>(&mut self, value: Option<T>) -> T {
        self.invalid |= value.is_none();
        value.unwrap_or_default()
    }

    fn next(&mut self) -> u64 {
        let word = self.words.next();
        self.short |= word.is_none();
        word.copied().unwrap_or(0)
    }

    /// Text of `words` words up to the first zero byte, with `?` for characters that cannot be
    /// printed.
    pub(super) fn text(&mut self, words: usize) -> String {
        let bytes = (0..words).flat_map(|_| self.next().to_ne_bytes());
        let bytes: Vec<u8> = bytes.collect();
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        let shown = |c: char| match c.is_control() || c == '\u{fffd}' {
            true => '?',
            false => c,
        };
        String::from_utf8_lossy(text).chars().map(shown).collect()
    }
}

/// Gives a text's words, cut or padded with zeros.
pub(super) fn put_text(text: &str, words: usize, to: &mut impl FnMut(u64)) {
    let mut bytes = text.bytes();
    for _ in 0..words {
        to(u64::from_ne_bytes(
            [(); 8].map(|()| bytes.next().unwrap_or(0)),
        ));
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Words for $type {
            fn put(&self, to: &mut impl FnMut(u64)) {
                to(u64::from(*self));
            }
            fn take(from: &mut Source<'_>) -> Self {
                let value = from.next().try_into().ok();
                from.valid(value)
            }
        }
    )*};
}

integers! { u8 u32 u64 }

impl Words for bool {
    fn put(&self, to: &mut impl FnMut(u64)) {
        to(u64::from(*self));
    }
    fn take(from: &mut Source<'_>) -> Self {
        let word = from.next();
        from.valid((word <= 1).then_some(word == 1))
    }
}

impl Words for String {
    fn put(&self, to: &mut impl FnMut(u64)) {
        put_text(self, TEXT_WORDS, to);
    }
    fn take(from: &mut Source<'_>) -> Self {
        from.text(TEXT_WORDS)
    }
}

impl<T: Words + Copy + Default> Words for Option<T> {
    fn put(&self, to: &mut impl FnMut(u64)) {
        self.is_some().put(to);
        self.unwrap_or_default().put(to);
    }
    fn take(from: &mut Source<'_>) -> Self {
        let (is_some, value) = (bool::take(from), T::take(from));
        is_some.then_some(value)
    }
}

impl<T: Words> Words for Vec<T> {
    fn put(&self, to: &mut impl FnMut(u64)) {
        to(self.len() as u64);
        self.iter().for_each(|value| value.put(to));
    }
    /// Reads the values whose words are all there.
    fn take(from: &mut Source<'_>) -> Self {
        let values = (0..from.next()).map_while(|_| {
            let value = T::take(from);
            (!from.short).then_some(value)
        });
        values.collect()
    }
}

impl<C: Counters> Words for C {
    fn put(&self, to: &mut impl FnMut(u64)) {
        self.words().as_ref().iter().for_each(|&word| to(word));
    }
    fn take(from: &mut Source<'_>) -> Self {
        let words: Vec<u64> = C::ROWS.iter().map(|_| from.next()).collect();
        C::from_words(&words)
    }
}

/// A struct whose fields are on a page in this order, except for those of its second part.
macro_rules! record {
    ($(#[$about:meta])+ $type:ident { $($(#[$doc:meta])+ $field:ident: $of:ty,)* }
        $(beside { $($(#[$other_doc:meta])+ $other:ident: $other_of:ty,)* })?) => {
        $(#[$about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $type {
            $($(#[$doc])+ pub $field: $of,)*
            $($($(#[$other_doc])+ pub $other: $other_of,)*)?
        }

        impl $crate::stats::words::Words for $type {
            fn put(&self, to: &mut impl FnMut(u64)) {
                $($crate::stats::words::Words::put(&self.$field, to);)*
            }
            fn take(from: &mut $crate::stats::words::Source<'_>) -> Self {
                Self {
                    $($field: $crate::stats::words::Words::take(from),)*
                    $($($other: Default::default(),)*)?
                }
            }
        }
    };
}

/// An enumeration whose values have a number on a page and a stable name.
macro_rules! named {
    ($(#[doc = $about:literal])+ $type:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type { #[default] $($(#[doc = $doc])+ $variant = $number,)* }

        impl $type {
            /// All values.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// Stable name for display and in JSON.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// Decodes a number.
            pub fn from_number(number: u8) -> Option<$type> {
                Self::ALL.iter().copied().find(|&k| k as u8 == number)
            }
        }

        impl $crate::stats::words::Words for $type {
            fn put(&self, to: &mut impl FnMut(u64)) {
                $crate::stats::words::Words::put(&(*self as u8), to);
            }
            fn take(from: &mut $crate::stats::words::Source<'_>) -> Self {
                let value = Self::from_number($crate::stats::words::Words::take(from));
                from.valid(value)
            }
        }
    };
}

pub(super) use {named, record};
