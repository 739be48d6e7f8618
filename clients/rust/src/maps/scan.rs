//! Scans: the keys of a map in their order, page by page.
//!
//! A page is made of views as they are at one moment. What a page is of the order, each map says: pages of one scan are of different moments,
//! so a key that is put or removed meanwhile may be on none of them, or on one.

use kernel::Bytes;
use std::ops::Bound;

/// Which keys a page is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapScan {
    /// Those that begin like this.
    pub prefix: Bytes,
    /// Those that are not before this one.
    pub from: Bytes,
    /// Those that are before this one; none: to the last.
    pub to: Option<Bytes>,
    /// At most so many; at least one.
    pub entries_max: usize,
    /// Keys and values of so many bytes together, unless a single one is longer.
    pub bytes_max: usize,
}

kernel::record! {
    /// Where the next page of a scan begins.
    #[derive(Eq)]
    pub struct MapScanPoint {
        /// In which shard, of maps whose pages go shard by shard; else 0.
        shard: u32,
        /// Behind this key; none: at the beginning of the shard.
        after: Option<Bytes>,
    }
}

/// A page of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapKeys<T> {
    /// Keys, in order, and what they hold.
    pub entries: Vec<(Bytes, T)>,
    /// Where the next page begins; none: there are no more keys.
    pub next: Option<MapScanPoint>,
}

/// Keys of a view, in order, and what they hold.
pub(super) type KeysFrom<'a, T> = Box<dyn Iterator<Item = (&'a Bytes, T)> + Send + 'a>;

/// What a page is made of.
pub(super) trait KeysInOrder {
    /// What a key holds.
    type Held;

    /// All keys from a bound on.
    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Self::Held>;

    /// Bytes of what a key holds.
    fn len_of(held: &Self::Held) -> usize;
}

impl MapScan {
    /// All keys, in pages of this size.
    pub fn all(entries_max: usize, bytes_max: usize) -> Self {
        Self { prefix: Bytes::new(), from: Bytes::new(), to: None, entries_max, bytes_max }
    }

    /// The first key that a page may have.
    pub(super) fn first<'a>(&'a self, after: Option<&'a Bytes>) -> Bound<&'a [u8]> {
        let first = (&self.from[..]).max(&self.prefix[..]);
        match after {
            Some(after) if &after[..] >= first => Bound::Excluded(&after[..]),
            Some(_) | None => Bound::Included(first),
        }
    }

    /// Whether a key is one of those that are wanted.
    pub fn wants(&self, key: &[u8]) -> bool {
        key >= &self.from[..] && key.starts_with(&self.prefix) && self.is_before_the_end(key)
    }

    fn is_before_the_end(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| key < &to[..])
    }
}

/// The part of a page that was read, and how much there may still be on it.
pub(super) struct PageSoFar<T> {
    pub(super) entries: Vec<(Bytes, T)>,
    bytes: usize,
}

impl<T> PageSoFar<T> {
    pub(super) fn empty() -> Self {
        Self { entries: Vec::new(), bytes: 0 }
    }

    /// Reads on, the keys of all of these in one order. True: there is no room for the next one.
    pub(super) fn read<V: KeysInOrder<Held = T>>(
        &mut self,
        views: &[&V],
        scan: &MapScan,
        after: Option<&Bytes>,
    ) -> bool {
        let first = scan.first(after);
        let mut all: Vec<_> = views.iter().map(|view| view.keys_from(first).peekable()).collect();
        loop {
            let heads = all.iter_mut().enumerate();
            let heads = heads.filter_map(|(at, keys)| Some((at, keys.peek()?.0)));
            let Some((at, _)) = heads.min_by_key(|(_, key)| *key) else { return false };
            let Some((key, held)) = all[at].next() else { return false };
            if !scan.wants(key) {
                // Keys with one prefix stand together, and begin where it was begun.
                return false;
            }
            let bytes = key.len() + V::len_of(&held);
            let has_room = self.entries.len() < scan.entries_max && self.bytes + bytes <= scan.bytes_max;
            if !has_room && !self.entries.is_empty() {
                return true;
            }
            self.bytes += bytes;
            self.entries.push((key.clone(), held));
        }
    }

    /// The page, of a map whose keys are in one order.
    pub(super) fn ended(self, has_more: bool) -> MapKeys<T> {
        let last = self.entries.last().map(|(key, _)| key.clone());
        let next = has_more.then(|| MapScanPoint { shard: 0, after: last });
        MapKeys { entries: self.entries, next }
    }
}

/// A page of the keys of all these views in one order.
pub(super) fn page_of<V: KeysInOrder>(
    views: &[&V],
    scan: &MapScan,
    point: Option<&MapScanPoint>,
) -> MapKeys<V::Held> {
    let mut page = PageSoFar::empty();
    let has_more = page.read(views, scan, point.and_then(|it| it.after.as_ref()));
    page.ended(has_more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    struct Plain(BTreeMap<Bytes, Bytes>);

    impl KeysInOrder for Plain {
        type Held = Bytes;

        fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Bytes> {
            Box::new(self.0.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, it)| (key, it.clone())))
        }

        fn len_of(held: &Bytes) -> usize {
            held.len()
        }
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    // A key that is on no page, or on two; one that was not asked for; a page that is longer than it may be, or a scan that does not end.
    #[test]
    fn each_wanted_key_is_on_one_page() {
        let keys: Vec<String> = (0..60).map(|at| format!("{}{at:02}", ["a", "ab", "b"][at % 3])).collect();
        let views: Vec<Plain> = (0..3)
            .map(|shard| {
                let own =
                    keys.iter().enumerate().filter(|(at, _)| at % 4 == shard || at % 4 == 3 && shard == 0);
                Plain(own.map(|(_, key)| (bytes(key), bytes(&format!("value of {key}")))).collect())
            })
            .collect();
        let views: Vec<&Plain> = views.iter().collect();
        let mut counts = BTreeSet::new();
        for prefix in ["", "a", "ab", "c", "b3"] {
            for from in ["", "a5", "ab", "b10"] {
                for to in [None, Some("ab3"), Some("b"), Some("")] {
                    for (entries_max, bytes_max) in [(1, 1 << 10), (7, 1 << 10), (1 << 10, 1), (1 << 10, 50)]
                    {
                        let scan = MapScan {
                            prefix: bytes(prefix),
                            from: bytes(from),
                            to: to.map(bytes),
                            entries_max,
                            bytes_max,
                        };
                        let (mut found, mut point, mut pages) = (Vec::new(), None, 0);
                        loop {
                            let page = page_of(&views, &scan, point.as_ref());
                            let len: usize = page.entries.iter().map(|(key, it)| key.len() + it.len()).sum();
                            assert!(page.entries.len() <= entries_max, "{scan:?}");
                            assert!(len <= bytes_max || page.entries.len() == 1, "{scan:?}: {len}");
                            assert!(page.next.is_none() || !page.entries.is_empty(), "{scan:?}");
                            found.extend(page.entries.into_iter().map(|(key, _)| key));
                            pages += 1;
                            point = page.next;
                            if point.is_none() {
                                break;
                            }
                        }
                        let mut wanted: Vec<Bytes> = keys.iter().map(|key| bytes(key)).collect();
                        wanted.sort();
                        wanted.retain(|key| {
                            key.starts_with(prefix.as_bytes())
                                && &key[..] >= from.as_bytes()
                                && to.is_none_or(|to| &key[..] < to.as_bytes())
                        });
                        assert_eq!(found, wanted, "{scan:?}");
                        counts.insert((found.len(), pages));
                    }
                }
            }
        }
        assert!(counts.len() > 20, "{counts:?}");
    }
}
