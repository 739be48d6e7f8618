//! One connection to one host.

use crate::credentials::Credentials;
use crate::protocol;
use bytes::{Buf, BytesMut};
use kernel::{Decode, Encode, FrameReader, FrameWriter, Reader};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<W: AsyncRead + AsyncWrite + Send + Unpin> Wire for W {}

/// What a queue keeps of its memory when it is empty.
const QUEUE_RETAINED_BYTES: usize = 256 << 10;

/// A frame is closed at this length.
const FRAME_BYTES: usize = 64 << 10;

/// A connection past its preface. Reading and writing are apart, so that neither side waits for the other to read first.
pub(crate) struct Connection {
    pub(crate) reading: Reading,
    pub(crate) writing: Writing,
}

/// What comes in.
pub(crate) struct Reading {
    stream: ReadHalf<Box<dyn Wire>>,
    input: BytesMut,
}

/// What goes out.
pub(crate) struct Writing {
    stream: WriteHalf<Box<dyn Wire>>,
    writer: FrameWriter,
    /// Closed frames on their way.
    output: BytesMut,
    flushed: bool,
}

impl Connection {
    /// Dials `endpoint` and exchanges prefaces.
    pub(crate) async fn dial(
        endpoint: String,
        credentials: Credentials,
        within: Duration,
    ) -> Result<Self, DialError> {
        let dialled = async {
            let stream = TcpStream::connect(&endpoint).await?;
            stream.set_nodelay(true)?;
            let mut stream: Box<dyn Wire> = match &credentials.tls {
                None => Box::new(stream),
                Some(tls) => Box::new(tls.greet(&endpoint, stream).await?),
            };
            match &credentials.token {
                None => stream.write_all(&protocol::preface(protocol::VERSION)).await?,
                Some(token) => {
                    let preface = protocol::preface_with_token(protocol::VERSION, token.secret());
                    stream.write_all(&preface).await?;
                }
            }
            stream.flush().await?;
            let mut preface = [0; protocol::PREFACE_BYTES];
            stream.read_exact(&mut preface).await?;
            match protocol::version_of(&preface) {
                Some(protocol::VERSION) => Ok(stream),
                Some(0) => Err(Self::refusal(&preface, &mut stream).await),
                Some(version) => {
                    Err(DialError::refused(format!("the server speaks version {version} of the protocol")))
                }
                None => Err(DialError::refused("the server does not speak this protocol")),
            }
        };
        let outcome: Result<Box<dyn Wire>, DialError> =
            tokio::time::timeout(within, dialled).await.map_err(|_| DialError::Broken)?;
        let stream = outcome?;
        let (reading, writing) = tokio::io::split(stream);
        Ok(Self {
            reading: Reading { stream: reading, input: BytesMut::with_capacity(64 << 10) },
            writing: Writing {
                stream: writing,
                writer: FrameWriter::default(),
                output: BytesMut::new(),
                flushed: true,
            },
        })
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Nobody answers, or not in time.
    Broken,
    /// The host does not want to serve us, and says why.
    Refused(String),
}

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(crate) enum Lost {
    /// It broke.
    Broken,
    /// The host has not the service that was called, and says so.
    Off(String),
}

impl From<io::Error> for Lost {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<io::Error> for DialError {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl DialError {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

impl Connection {
    /// What the host says behind a preface of version 0.
    async fn refusal(preface: &[u8; protocol::PREFACE_BYTES], stream: &mut Box<dyn Wire>) -> DialError {
        let mut why = vec![0; protocol::refusal_bytes(preface)];
        match stream.read_exact(&mut why).await {
            Ok(_) if !why.is_empty() => DialError::Refused(String::from_utf8_lossy(&why).into_owned()),
            Ok(_) | Err(_) => DialError::refused("the server speaks no version of this client's protocol"),
        }
    }
}

impl Writing {
    /// Queues a message.
    pub(crate) fn push(&mut self, message: &impl Encode) {
        self.writer.message(message);
        // Servers bound their frames; what is sent again after a fault may be much.
        if self.writer.open_bytes() >= FRAME_BYTES {
            self.writer.close();
        }
    }

    /// Writes what is queued, and then waits for ever. Cancelling loses nothing.
    pub(crate) async fn progress(&mut self) -> io::Result<std::convert::Infallible> {
        let queued = self.writer.bytes();
        if !queued.is_empty() {
            self.output.extend_from_slice(queued);
            queued.clear();
            queued.shrink_to(QUEUE_RETAINED_BYTES);
        }
        while !self.output.is_empty() {
            self.flushed = false;
            let taken = self.stream.write(&self.output).await?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.output.advance(taken);
        }
        if !self.flushed {
            self.stream.flush().await?;
            self.flushed = true;
        }
        std::future::pending().await
    }
}

impl Reading {
    /// Waits for bytes and returns the messages that are whole. Cancelling loses nothing.
    pub(crate) async fn receive<M: Decode>(&mut self) -> Result<Vec<M>, Lost> {
        let frames = FrameReader { body_max: protocol::BODY_BYTES_MAX };
        let mut messages = Vec::new();
        if self.stream.read_buf(&mut self.input).await? == 0 {
            return Err(self.farewell().map_or(Lost::Broken, Lost::Off));
        }
        while !protocol::begins_as_preface(&self.input)
            && let Some(body) = frames.next(&mut self.input).map_err(io::Error::other)?
        {
            let mut body = Reader::new(body);
            while body.remaining() > 0 {
                let message = kernel::Bytes::decode(&mut body).map_err(io::Error::other)?;
                match M::decoded(&message) {
                    Ok(message) => messages.push(message),
                    // A newer server may say what this client does not know.
                    Err(kernel::DecodeError::UnknownTag(..)) => {}
                    Err(error) => return Err(io::Error::other(error).into()),
                }
            }
        }
        // What was answered before counts first.
        match self.farewell() {
            Some(why) if messages.is_empty() => Err(Lost::Off(why)),
            Some(_) | None => Ok(messages),
        }
    }

    /// What the host says before it closes the connection, once all of it is here.
    fn farewell(&self) -> Option<String> {
        let (preface, why) = self.input.split_first_chunk::<{ protocol::PREFACE_BYTES }>()?;
        let is_refusal = protocol::version_of(preface) == Some(0);
        let why = why.get(..protocol::refusal_bytes(preface)).filter(|_| is_refusal)?;
        Some(String::from_utf8_lossy(why).into_owned())
    }
}
