"""confluent-kafka (librdkafka) against a cluster: what is produced comes back byte for byte.

usage: smoke.py SERVERS COUNT produce|consume|group plain|idempotent [COMPRESSION]
Produce prints which host leads, and every 1,000 acknowledged records, so that its caller can kill that host meanwhile.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "smoke"


def record(number):
    key = None if number % 3 == 0 else b"key\x00%d" % (number % 100)
    value = None if number % 50 == 49 else b"%d " % number + bytes(range(256))[: number % 97] * 2
    headers = [("h", b"\xff%d" % number), ("h", None), ("empty", b"")] if number % 7 == 0 else None
    return key, value, headers, 1_600_000_000_000 + number * 3


def produce(servers, count, compression):
    acknowledged = 0

    def delivered(error, _message):
        nonlocal acknowledged
        if error is not None:
            sys.exit(f"not delivered: {error}")
        acknowledged += 1
        if acknowledged % 1000 == 0:
            print(f"acknowledged {acknowledged}", flush=True)

    producer = Producer({
        "bootstrap.servers": servers,
        "compression.type": compression,
        "enable.idempotence": IDEMPOTENT,
        "linger.ms": 5,
        "message.timeout.ms": 60_000,
        "queue.buffering.max.messages": 100_000,
    })
    for number in range(count):
        key, value, headers, timestamp = record(number)
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value=value,
                    key=key,
                    partition=0,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=headers,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60) or acknowledged != count:
        sys.exit(f"{acknowledged} of {count} acknowledged")


def consume(servers, count):
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    })
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    middle = consumer.offsets_for_times([TopicPartition(TOPIC, 0, record(count // 2)[3])], timeout=30)[0].offset
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    numbers, offset, begun = [], 0, time.monotonic()
    expected = 0
    while True:
        message = consumer.poll(30)
        if message is None:
            sys.exit(f"nothing after {offset}")
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                break
            sys.exit(f"{message.error()}")
        if message.offset() != offset:
            sys.exit(f"offset {message.offset()} where {offset} was expected")
        number = (message.timestamp()[1] - 1_600_000_000_000) // 3
        if (message.key(), message.value(), message.headers(), message.timestamp()[1]) != record(number):
            sys.exit(f"offset {offset}: {message.key()} {message.value()} {message.headers()} differs from record {number}")
        numbers.append(number)
        offset += 1
    if (low, high) != (0, offset):
        sys.exit(f"offsets {low} to {high}, read {offset}")
    if set(numbers) != set(range(count)):
        sys.exit(f"{count - len(set(numbers))} records are missing")
    if numbers[middle] < count // 2 or any(number >= count // 2 for number in numbers[:middle]):
        sys.exit(f"offset {middle} is not the first at the time of record {count // 2}")
    twice = len(numbers) - count
    if IDEMPOTENT and (twice or numbers != sorted(numbers)):
        sys.exit(f"{twice} records are there twice")
    print(f"{count} records, {twice} of them again, in {time.monotonic() - begun:.2f} s")


def group(servers, count):
    """Two members of a group, one after the other: what one has committed the other does not see again."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "readers/1",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
    }
    next_offset, numbers = 0, set()

    def read(consumer, until):
        nonlocal next_offset
        while next_offset < until:
            message = consumer.poll(60)
            if message is None:
                sys.exit(f"nothing after {next_offset}")
            if message.error():
                sys.exit(f"{message.error()}")
            if message.offset() < next_offset:
                continue
            if message.offset() != next_offset:
                sys.exit(f"offset {message.offset()} where {next_offset} was expected")
            next_offset += 1
            numbers.add((message.timestamp()[1] - 1_600_000_000_000) // 3)
            if next_offset % 2000 == 0:
                commit(consumer)

    def commit(consumer):
        deadline = time.monotonic() + 60
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, next_offset)], asynchronous=False)
                return print(f"acknowledged {next_offset}", flush=True)
            except KafkaException as error:
                if time.monotonic() > deadline or not error.args[0].retriable():
                    # The members are to join anew, which the next poll does; what is read meanwhile comes again.
                    if error.args[0].code() not in JOIN_ANEW or time.monotonic() > deadline:
                        raise
                    return

    first, second = Consumer(settings), Consumer(settings)
    high = first.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1]
    first.subscribe([TOPIC])
    read(first, high // 2)
    commit(first)
    second.subscribe([TOPIC])
    second.poll(1)
    first.close()
    read(second, high)
    second.commit(offsets=[TopicPartition(TOPIC, 0, next_offset)], asynchronous=False)
    committed = second.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset
    second.close()
    if committed != high or numbers != set(range(count)):
        sys.exit(f"committed {committed} of {high}, {count - len(numbers)} records are missing")
    print(f"{high} records by two members of a group", flush=True)


JOIN_ANEW = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._STATE,
)
IDEMPOTENT = sys.argv[4] == "idempotent"
servers, count = sys.argv[1], int(sys.argv[2])
if sys.argv[3] == "produce":
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(TOPIC, 1, config={"retention.bytes": str(400 << 20)})
    admin.create_topics([topic])[TOPIC].result(30)
    metadata = admin.list_topics(TOPIC, 30)
    print(f"leader {metadata.brokers[metadata.topics[TOPIC].partitions[0].leader].port}", flush=True)
    begun = time.monotonic()
    produce(servers, count, sys.argv[5])
    print(f"{count} records produced in {time.monotonic() - begun:.2f} s")
elif sys.argv[3] == "group":
    group(servers, count)
else:
    consume(servers, count)
