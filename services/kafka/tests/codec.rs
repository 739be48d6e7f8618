//! The codec: what is written is read back, and nothing that comes can do harm.

use kafka::{
    Batch, Code, Head, NO_TIMESTAMP, PLAIN_BYTES_MAX, PutKafka as _, Record, Request, RequestBytes, key,
    write_batch,
};
use kernel::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use shared_log::Rows;

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let header = (bytes(), proptest::option::of(bytes()));
    let record = (
        // Far apart, but not so far that their difference is no `i64`: no producer writes such a batch.
        -(1_i64 << 62)..1 << 62,
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        vec(header, 0..4),
    );
    let record =
        record.prop_map(|(timestamp, key, value, headers)| Record { timestamp, key, value, headers });
    vec(record, 1..20)
}

fn rows(records: &[Record]) -> Bytes {
    let mut rows = Rows::default();
    for record in records {
        let mut entry = Vec::new();
        record.write(&mut entry);
        rows.push(&entry);
    }
    rows.into_bytes()
}

fn read(batch: &[u8]) -> Result<Vec<Record>, Code> {
    let batch = Batch::read(Bytes::copy_from_slice(batch), &mut PLAIN_BYTES_MAX.clone())?;
    assert!(batch.chunks.iter().all(|chunk| Rows::count(&chunk.rows) == Some(chunk.count as usize)));
    let entries = batch.chunks.iter().flat_map(|chunk| Rows::iter(&chunk.rows));
    Ok(entries.map(|entry| Record::of(&Bytes::copy_from_slice(entry))).collect())
}

fn request(key: i16, version: i16, body: &[u8]) -> Bytes {
    let mut frame = Vec::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(7);
    frame.put_text(Some("client"));
    frame.extend_from_slice(body);
    frame.into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    // A record that is not the same behind the log is a record lost.
    #[test]
    fn batches_are_read_as_written(records in records(), first in 0..1_u64 << 40) {
        let mut batch = Vec::new();
        write_batch(first, &rows(&records), &mut batch);
        prop_assert_eq!(RequestBytes(batch.clone().into()).i64(), Ok(first as i64));
        prop_assert_eq!(read(&batch), Ok(records));
    }

    // A batch truncated or changed on the way must not be taken for another one.
    #[test]
    fn damaged_batches_are_refused(records in records(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut batch = Vec::new();
        write_batch(0, &rows(&records), &mut batch);
        let length = at.index(batch.len());
        prop_assert!(read(&batch[..length]).is_err());
        // What comes before the checksum: the base offset and the leader's epoch may be anything.
        let covered = 21 + at.index(batch.len() - 21);
        batch[covered] ^= 1 << bit;
        prop_assert_eq!(read(&batch), Err(Code::CORRUPT_MESSAGE));
    }

    // A client that can write a checksum can write anything behind it.
    #[test]
    fn hostile_batches_harm_nobody(records in records(), at in any::<prop::sample::Index>(), byte in any::<u8>(), codec in 0..8_u8) {
        let mut batch = Vec::new();
        write_batch(0, &rows(&records), &mut batch);
        batch[22] |= codec;
        let at = 21 + at.index(batch.len() - 21);
        batch[at] = byte;
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        let _ = read(&batch);
    }

    // A request that panics takes the host with it.
    #[test]
    fn nothing_panics_on_requests(key in 0..25_i16, version in 0..14_i16, body in vec(prop_oneof![Just(0_u8), Just(255), any::<u8>()], 0..200)) {
        let _ = Request::read(request(key, version, &body));
        let _ = Request::read(Bytes::from(body));
    }

    // Any entry is some record, and a record is one entry.
    #[test]
    fn entries_of_any_bytes_are_records(entry in vec(prop_oneof![Just(0xff_u8), Just(b'K'), any::<u8>()], 0..60)) {
        let record = Record::of(&Bytes::from(entry.clone()));
        let plain = record.value.as_deref() == Some(&entry) && record.timestamp == NO_TIMESTAMP;
        let mut again = Vec::new();
        record.write(&mut again);
        prop_assert!(plain || Record::of(&again.into()) == record);
    }
}

/// Made by hand from Kafka's description of the format, with the checksum of another implementation: "k" => "v" at 1000, and null => ""
/// at 1005 with a header "h" of null.
const BATCH: &str = "
    0000000000000000 00000044 ffffffff 02 5a4db6bd
    0000 00000001 00000000000003e8 00000000000003ed ffffffffffffffff ffff ffffffff 00000002
    10 00 00 00 02 6b 02 76 00
    12 00 0a 02 01 00 02 02 68 01";

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

fn two() -> Vec<Record> {
    let first =
        Record { timestamp: 1000, key: Some("k".into()), value: Some("v".into()), headers: Vec::new() };
    let headers = vec![(Bytes::from("h"), None)];
    vec![first, Record { timestamp: 1005, key: None, value: Some(Bytes::new()), headers }]
}

// A codec that only agrees with itself talks to nobody.
#[test]
fn batches_are_kafkas() {
    let batch = from_hex(BATCH);
    assert_eq!(read(&batch), Ok(two()));
    let mut written = Vec::new();
    write_batch(0, &rows(&two()), &mut written);
    assert_eq!(written, batch);
}

/// The records of [`BATCH`] as the codec's own authors compress them.
fn compressed(codec: u8, records: &[u8]) -> Vec<u8> {
    let mut batch = from_hex(BATCH)[..61].to_vec();
    batch[22] = codec;
    batch.extend_from_slice(records);
    let length = (batch.len() - 12) as u32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

// A codec that a client may choose and the host cannot undo is an outage; one that undoes more than there is memory for is another.
#[test]
fn all_codecs_are_undone_within_bounds() {
    use std::io::Write as _;
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory can be written")
    };
    let snappy = |plain: &[u8]| snap::raw::Encoder::new().compress_vec(plain).expect("memory can be written");
    let xerial = |plain: &[u8]| {
        let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
        for block in plain.chunks(1 << 20) {
            let block = snappy(block);
            framed.put_i32(block.len() as i32);
            framed.extend(block);
        }
        framed
    };
    let lz4 = |plain: &[u8]| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(plain).expect("memory can be written");
        encoder.finish().expect("memory can be written")
    };
    let zstd =
        |plain: &[u8]| ruzstd::encoding::compress_to_vec(plain, ruzstd::encoding::CompressionLevel::Fastest);
    let plain = &from_hex(BATCH)[61..];
    let bomb = vec![0; PLAIN_BYTES_MAX + 1];
    let check = |codec: u8, compress: &dyn Fn(&[u8]) -> Vec<u8>| {
        assert_eq!(read(&compressed(codec, &compress(plain))), Ok(two()), "codec {codec}");
        assert_eq!(read(&compressed(codec, &compress(&bomb))), Err(Code::MESSAGE_TOO_LARGE), "codec {codec}");
        assert!(read(&compressed(codec, &compress(plain)[..9])).is_err(), "codec {codec}");
    };
    check(1, &gzip);
    check(2, &snappy);
    check(2, &xerial);
    check(3, &lz4);
    check(4, &zstd);
    assert_eq!(read(&compressed(5, plain)), Err(Code::UNSUPPORTED_COMPRESSION_TYPE));
    assert_eq!(read(&compressed(1, plain)), Err(Code::CORRUPT_MESSAGE));
}

// Records beyond what one append takes would all be refused, and the client would try them for ever.
#[test]
fn large_batches_become_several_appends() {
    let record =
        Record { timestamp: 1, key: None, value: Some(vec![7; 300_000].into()), headers: Vec::new() };
    let mut batch = Vec::new();
    write_batch(0, &rows(&vec![record.clone(); 7]), &mut batch);
    let chunks = Batch::read(batch.into(), &mut PLAIN_BYTES_MAX.clone()).expect("it is sound").chunks;
    assert_eq!(chunks.iter().map(|chunk| chunk.count).collect::<Vec<_>>(), [3, 3, 1]);
    let mut batch = Vec::new();
    write_batch(0, &rows(&[Record { value: Some(vec![7; 1 << 20].into()), ..record }]), &mut batch);
    assert_eq!(read(&batch), Err(Code::MESSAGE_TOO_LARGE));
}

// What a real client sends, byte by byte (Kafka's protocol guide): a Metadata of version 4 and an ApiVersions of a version to come.
#[test]
fn requests_are_kafkas() {
    let metadata = from_hex("0003 0004 00000007 0002 6162 00000001 0003 782d79 01");
    let (head, request) = Request::read(metadata.clone().into()).expect("it is sound");
    assert_eq!(head, Head { key: key::METADATA, version: 4, correlation: 7 });
    let Request::Metadata(metadata_of) = request else { panic!("another request: {request:?}") };
    assert_eq!(metadata_of.topics, Some(vec!["x-y".into()]));
    assert!(metadata_of.may_create);
    for length in 0..metadata.len() {
        assert!(Request::read(Bytes::copy_from_slice(&metadata[..length])).is_err(), "truncated at {length}");
    }
    let (_, newer) =
        Request::read(from_hex("0012 0005 00000007 0002 6162 00 ff").into()).expect("it is sound");
    assert_eq!(newer, Request::NewerApiVersions);
    assert!(
        Request::read(from_hex("0003 0009 00000007 0002 6162 00").into()).is_err(),
        "a version that is not spoken"
    );
}

// A name of 30 kB before a hundred thousand partitions must not be copied a hundred thousand times.
#[test]
fn a_request_takes_no_more_memory_than_its_parts_allow() {
    let mut body = Vec::new();
    body.put_i32(-1);
    body.push(0);
    body.put_i32(1);
    body.put_text(Some(&"n".repeat(30_000)));
    body.put_array(0..10_001, |body, partition| {
        body.put_i32(partition);
        body.put_i64(-1);
    });
    assert!(
        Request::read(request(key::LIST_OFFSETS, 2, &body)).is_err(),
        "more partitions than a request may have"
    );
}
