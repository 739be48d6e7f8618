"""confluent-kafka (librdkafka) logs in by SCRAM-SHA-256, and is refused by Kafka's own errors.

usage: sasl.py SERVERS USER PASSWORD GRANTED-TOPIC OTHER-TOPIC
"""

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

SERVERS, USER, PASSWORD, GRANTED, OTHER = sys.argv[1:]
COUNT = 1000


def settings(password=PASSWORD):
    return {
        "bootstrap.servers": SERVERS,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": password,
    }


def produced(topic, count):
    """The errors of records that were not delivered."""
    errors = []
    producer = Producer({**settings(), "message.timeout.ms": 20_000, "enable.idempotence": True})
    for number in range(count):
        producer.produce(
            topic,
            value=b"%d" % number,
            partition=0,
            on_delivery=lambda error, _message: error and errors.append(error.code()),
        )
        producer.poll(0)
    assert producer.flush(60) == 0, "records are left"
    return errors


def check(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, and not {wanted!r}")


check("what is granted", produced(GRANTED, COUNT), [])
consumer = Consumer({**settings(), "group.id": "sasl", "enable.auto.commit": False})
consumer.assign([TopicPartition(GRANTED, 0, 0)])
values = []
while len(values) < COUNT:
    message = consumer.poll(20)
    assert message is not None and message.error() is None, message and message.error()
    values.append(message.value())
consumer.close()
check("what came back", values, [b"%d" % number for number in range(COUNT)])
check("what is not granted", set(produced(OTHER, 3)), {KafkaError.TOPIC_AUTHORIZATION_FAILED})
refused = []
stranger = Producer({**settings("wrong"), "error_cb": lambda error: refused.append(error.code())})
try:
    stranger.list_topics(timeout=5)
    sys.exit("a wrong password was taken")
except KafkaException:
    stranger.poll(1)
check("a wrong password", KafkaError._AUTHENTICATION in refused, True)
print(f"{COUNT} records, and each refusal by its own error")
