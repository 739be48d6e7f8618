//! The photo-sharing application of the RSS paper (section 2.2): web servers add photos to albums, and a worker processes them.
//!
//! ```sh
//! cargo run -p ordinate-client --example photos -- 127.0.0.1:7071
//! ```
//!
//! Photos and albums are keys of the transaction service; the keys of photos to be processed go through a log. Each web server and the
//! worker are a [`Process`]: what one of them enqueues, the other finds. So an album lists only photos that are there (the paper's
//! invariant I1), and the worker finds each photo that it is sent (I2), although all reads are at the level `rss`.

use ordinate_client::{Log, LogError, Process, ProcessError, TxnClient, TxnError, TxnLevel};
use std::time::Duration;

const WEB_SERVERS: usize = 3;
const PHOTOS: usize = 4;
/// The log of photos to be processed.
const QUEUE: &str = "photo-queue";

/// Why the application could not go on.
#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Txn(#[from] TxnError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Adds a photo to an album in one transaction, and asks the workers to process it; its position in the queue.
async fn add_photo(web: &Process, album: &str, photo: &str) -> Result<u64, AppError> {
    web.txn()
        .await?
        .transaction(|t| async move {
            let mut list = t.get(album).await?.map(|list| list.to_vec()).unwrap_or_default();
            list.extend_from_slice(photo.as_bytes());
            list.push(b'\n');
            t.put(photo, "high resolution");
            t.put(album, list);
            Ok::<_, TxnError>(())
        })
        .await?;
    // The fence of the transaction service runs here.
    Ok(web.log().await?.append(QUEUE, [photo].into_iter().collect()).await?)
}

/// What one look at a photo and its album shows.
struct Look {
    is_listed: bool,
    has_data: bool,
}

async fn look(worker: &Process, album: &str, photo: &str) -> Result<Look, AppError> {
    let read = worker.txn().await?.read(TxnLevel::Rss).keys([album, photo]).run().await?;
    let value = |row: usize| read.rows.get(row).and_then(|row| row.value.clone());
    let list = value(0).unwrap_or_default();
    let is_listed = list.split(|&byte| byte == b'\n').any(|name| name == photo.as_bytes());
    Ok(Look { is_listed, has_data: value(1).is_some() })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AppError> {
    let hosts: Vec<String> = std::env::args().skip(1).collect();
    let hosts = if hosts.is_empty() { vec!["127.0.0.1:7071".to_owned()] } else { hosts };
    let process =
        || Process::new().with_txn(TxnClient::connect(hosts.clone())).with_log(Log::connect(hosts.clone()));
    match Log::connect(hosts.clone()).create(QUEUE, 1 << 20, None).await {
        Ok(()) | Err(LogError::Exists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    // Several runs on one cluster do not meet.
    let run = std::process::id();
    let album = format!("album/{run}");
    let mut serving = tokio::task::JoinSet::new();
    for server in 0..WEB_SERVERS {
        let (web, album) = (process(), album.clone());
        serving.spawn(async move {
            let mut positions = Vec::new();
            for number in 0..PHOTOS {
                positions.push(add_photo(&web, &album, &format!("photo/{run}-{server}-{number}")).await?);
            }
            Ok::<_, AppError>(positions)
        });
    }
    let mut positions = Vec::new();
    while let Some(done) = serving.join_next().await {
        positions.extend(done.expect("a web server does not panic")?);
    }
    let worker = process();
    let (mut i1, mut i2) = (0, 0);
    for position in &positions {
        let read = worker.log().await?.read(QUEUE, *position, 1, Duration::from_secs(1)).await?;
        let photo = read.entries.first().map(|entry| String::from_utf8_lossy(entry).into_owned());
        let photo = photo.expect("the log has what was appended");
        let look = look(&worker, &album, &photo).await?;
        i1 += usize::from(look.is_listed && !look.has_data);
        i2 += usize::from(!look.has_data);
    }
    println!("{} photos processed; I1 was broken {i1} times, I2 {i2} times", positions.len());
    assert_eq!((positions.len(), i1, i2), (WEB_SERVERS * PHOTOS, 0, 0));
    Ok(())
}
