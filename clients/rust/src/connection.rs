//! One connection to one host.

use crate::protocol;
use bytes::BytesMut;
use kernel::{Decode, FrameReader, FrameWriter, Reader};
use paxos::Message;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DIAL_WITHIN: Duration = Duration::from_secs(2);

/// A connection past its preface.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    writer: FrameWriter,
}

impl Connection {
    /// Dials `endpoint` and exchanges prefaces.
    pub(crate) async fn dial(endpoint: &str) -> io::Result<Self> {
        let dialled = async {
            let mut stream = TcpStream::connect(endpoint).await?;
            stream.set_nodelay(true)?;
            stream.write_all(&protocol::preface(protocol::VERSION)).await?;
            let mut preface = [0; protocol::PREFACE_BYTES];
            stream.read_exact(&mut preface).await?;
            match protocol::version_of(&preface) {
                Some(protocol::VERSION) => Ok(stream),
                Some(version) => {
                    Err(io::Error::other(format!("the server speaks version {version} of the protocol")))
                }
                None => Err(io::Error::other("the server does not speak this protocol")),
            }
        };
        let stream =
            tokio::time::timeout(DIAL_WITHIN, dialled).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Self { stream, input: BytesMut::with_capacity(64 << 10), writer: FrameWriter::default() })
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, message: &Message) {
        self.writer.message(message);
    }

    /// Writes what is queued.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let bytes = self.writer.bytes();
        if !bytes.is_empty() {
            self.stream.write_all(bytes).await?;
            bytes.clear();
        }
        Ok(())
    }

    /// Waits for bytes and returns the messages that are whole. Cancelling loses nothing.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<Message>> {
        let frames = FrameReader { body_max: protocol::BODY_BYTES_MAX };
        let mut messages = Vec::new();
        if self.stream.read_buf(&mut self.input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(body) = frames.next(&mut self.input).map_err(io::Error::other)? {
            let mut body = Reader::new(body);
            while body.remaining() > 0 {
                let message = kernel::Bytes::decode(&mut body).map_err(io::Error::other)?;
                match Message::decoded(&message) {
                    Ok(message) => messages.push(message),
                    // A newer server may say what this client does not know.
                    Err(kernel::DecodeError::UnknownTag(..)) => {}
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
        }
        Ok(messages)
    }
}
