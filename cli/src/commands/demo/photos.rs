//! `photos` at the demo's prompt: Table 1 of the RSS paper, by the photo-sharing application over the demo's own hosts. What two hosts
//! send each other is delayed, so that two-phase commit of a photo and its album really hangs half-way while others look.

use consistency::history::{Draft, History};
use consistency::{Level, Model, Time, check};
use ordinate_client::{Log, LogError, TxnClient, TxnError, TxnLevel};
use std::time::{Duration, Instant};

/// What the two hosts send each other takes this long. A commit takes two of it, whichever shard decides, so readers may skip it for as
/// long: its earliest end is the least that one took lately, and at most half of the demo's `txn.fence_bound`.
const DELAY: Duration = Duration::from_millis(300);
/// A commit in flight is looked for so often.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// A commit in flight has to be seen within this.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
/// The log answers sooner unless it, too, has to go the delayed way.
const LOG_WITHIN: Duration = Duration::from_millis(250);
/// Every second commit is decided by the shard that it has to be; some are too slow on a busy machine.
const TRIES: usize = 16;
/// A look at a commit in flight may be late on a busy machine: so many commits are looked at, or until one is missed.
const LOOKS: usize = 2;
const QUEUE: &str = "photo-queue";

/// Where the application's processes are connected.
struct Stage {
    /// The host that leads the albums' shard and decides; what it and the second one send each other is delayed.
    decides: String,
    /// The host that leads the photos' shard.
    participates: String,
    /// The third host.
    beside: String,
    /// Keys of the albums' shard begin so.
    albums: String,
    /// Keys of the photos' shard begin so.
    photos: String,
}

/// A process of the application: one session of each service.
struct Party {
    number: u64,
    txn: TxnClient,
    log: Log,
}

/// Who writes, and who looks.
struct Photos<'a> {
    stage: &'a Stage,
    level: TxnLevel,
    begun: Instant,
    history: History,
    processes: u64,
    run: u64,
    photo: u64,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn level_of(level: TxnLevel) -> Level {
    level.name().parse().expect("the service and the checker call levels by the same words")
}

/// A commit that is decided, and whose end one host does not know yet.
struct InFlight {
    running: tokio::task::JoinHandle<Result<(), TxnError>>,
    writer: u64,
    asked: Time,
    album: String,
    photo: String,
}

/// One row of the table.
#[derive(Default)]
struct Row {
    i1: bool,
    i2: bool,
    a1: bool,
    a2: bool,
    a3: [bool; 2],
    verdict: String,
    holds: bool,
}

impl Row {
    /// In the words of the paper's table.
    fn print(&self, level: TxnLevel, fences: bool) {
        let invariant = |holds: bool| if holds { "holds" } else { "BREAKS" };
        let anomaly = |sees: bool| if sees { "never" } else { "seen" };
        let third = match self.a3 {
            [true, _] => "never",
            [false, true] => "temporarily",
            [false, false] => "seen",
        };
        let name = if fences { level.to_string() } else { format!("{level}, no fence") };
        println!(
            "  {name:<22} I1 {:<7} I2 {:<7} A1 {:<6} A2 {:<6} A3 {:<12} {}",
            invariant(self.i1),
            invariant(self.i2),
            anomaly(self.a1),
            anomaly(self.a2),
            third,
            self.verdict
        );
    }
}

impl<'a> Photos<'a> {
    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    fn party(&mut self, txn: &str, log: &str) -> Party {
        self.processes += 1;
        Party { number: self.processes, txn: TxnClient::connect([txn]), log: Log::connect([log]) }
    }

    fn names(&mut self) -> (String, String) {
        self.photo += 1;
        let (Stage { albums, photos, .. }, run, photo) = (self.stage, self.run, self.photo);
        (format!("{albums}/{run}-{photo}"), format!("{photos}/{run}-{photo}"))
    }

    /// Reads keys in one transaction; which of them are there.
    async fn look(&mut self, party: &Party, keys: &[&str]) -> Result<Vec<bool>, String> {
        let asked = self.now();
        let read = party.txn.read(self.level).keys(keys.iter().copied()).run().await.map_err(words)?;
        let mut draft =
            Draft::new(consistency::Process(party.number), asked, self.now()).at_level(level_of(self.level));
        for (key, row) in keys.iter().zip(&read.rows) {
            draft = draft.read(*key, i64::from(row.value.is_some()));
        }
        self.history.add(draft);
        Ok(read.rows.iter().map(|row| row.value.is_some()).collect())
    }

    /// Adds a photo, and waits for the end.
    async fn add(&mut self, party: &Party) -> Result<(String, String), String> {
        let (album, photo) = self.names();
        let asked = self.now();
        commit(party.txn.clone(), album.clone(), photo.clone()).await.map_err(words)?;
        let draft = Draft::new(consistency::Process(party.number), asked, self.now());
        self.history.add(draft.at_level(Level::Strict).write(album.as_str(), 1).write(photo.as_str(), 1));
        Ok((album, photo))
    }

    /// Adds photos until one is seen at the host that decided before its writer knows the end.
    async fn add_and_catch(&mut self, first: &Party) -> Result<InFlight, String> {
        let seen_at = if self.level == TxnLevel::ProcessOrdered { TxnLevel::Rss } else { self.level };
        for _ in 0..TRIES {
            let stage = self.stage;
            let writer = self.party(&stage.participates, &stage.beside);
            let (album, photo) = self.names();
            let asked = self.now();
            // Every second one is decided by the other shard.
            let running = tokio::spawn(commit(writer.txn.clone(), album.clone(), photo.clone()));
            let in_flight = InFlight { running, writer: writer.number, asked, album, photo };
            let album = in_flight.album.clone();
            let deadline = Instant::now() + SEEN_WITHIN;
            while !in_flight.running.is_finished() && Instant::now() < deadline {
                let looked = self.now();
                let read = first.txn.read(seen_at).keys([album.as_str()]).run().await.map_err(words)?;
                let sees = read.rows.first().is_some_and(|row| row.value.is_some());
                let draft = Draft::new(consistency::Process(first.number), looked, self.now())
                    .at_level(level_of(seen_at))
                    .read(album.as_str(), i64::from(sees));
                self.history.add(draft);
                if sees && !in_flight.running.is_finished() {
                    return Ok(in_flight);
                }
                if sees {
                    break;
                }
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            }
            self.finish(in_flight).await?;
        }
        Err(format!("no commit was caught half-way in {TRIES}: the machine is too busy, try again"))
    }

    async fn finish(&mut self, in_flight: InFlight) -> Result<(), String> {
        let InFlight { running, writer, asked, album, photo } = in_flight;
        running.await.map_err(words)?.map_err(words)?;
        let draft = Draft::new(consistency::Process(writer), asked, self.now()).at_level(Level::Strict);
        self.history.add(draft.write(album.as_str(), 1).write(photo.as_str(), 1));
        Ok(())
    }

    /// I2 after a read of what is in flight: holds if the worker finds the photo each time.
    async fn processed_in_flight(&mut self, fences: bool) -> Result<bool, String> {
        let mut holds = true;
        for _ in 0..LOOKS {
            holds = holds && self.processed_once(fences).await?;
        }
        Ok(holds)
    }

    /// The web server enqueues a photo that it sees in flight, with a fence before or without.
    async fn processed_once(&mut self, fences: bool) -> Result<bool, String> {
        let stage = self.stage;
        let web = self.party(&stage.decides, &stage.beside);
        let worker = self.party(&stage.participates, &stage.beside);
        let in_flight = self.add_and_catch(&web).await?;
        if fences {
            let asked = self.now();
            web.txn.fence().await.map_err(words)?;
            let fence = Draft::new(consistency::Process(web.number), asked, self.now()).fence();
            self.history.add(fence);
        }
        let append = web.log.append(QUEUE, [in_flight.photo.as_str()].into_iter().collect());
        let position = append.await.map_err(words)?;
        let read = worker.log.read(QUEUE, position, 1, LOG_WITHIN).await.map_err(words)?;
        let photo = read.entries.first().map(|entry| String::from_utf8_lossy(entry).into_owned());
        let photo = photo.ok_or("the queue has no entry where one was appended")?;
        let found = self.look(&worker, &[&photo]).await?;
        self.finish(in_flight).await?;
        Ok(found == [true])
    }

    /// A3: whether Bob sees each photo at once, and whether he sees each that has ended.
    async fn called_in_flight(&mut self) -> Result<[bool; 2], String> {
        let mut sees = [true; 2];
        for _ in 0..LOOKS {
            if sees[0] {
                sees = self.called_once().await?;
            }
        }
        Ok(sees)
    }

    /// Alice sees a photo in flight and calls Bob, who looks now and when it has ended.
    async fn called_once(&mut self) -> Result<[bool; 2], String> {
        let stage = self.stage;
        let alice = self.party(&stage.decides, &stage.beside);
        let bob = self.party(&stage.participates, &stage.beside);
        let in_flight = self.add_and_catch(&alice).await?;
        let photo = in_flight.photo.clone();
        let now = self.look(&bob, &[&photo]).await?;
        self.finish(in_flight).await?;
        tokio::time::sleep(2 * DELAY).await;
        let later = self.look(&bob, &[&photo]).await?;
        Ok([now == [true], later == [true]])
    }

    /// I1: album and photo, read together again and again while both are being written.
    async fn whole(&mut self) -> Result<bool, String> {
        let stage = self.stage;
        let first = self.party(&stage.decides, &stage.beside);
        let readers =
            [self.party(&stage.participates, &stage.beside), self.party(&stage.beside, &stage.beside)];
        let in_flight = self.add_and_catch(&first).await?;
        let (album, photo) = (in_flight.album.clone(), in_flight.photo.clone());
        let mut whole = true;
        for _ in 0..5 {
            for reader in &readers {
                let found = self.look(reader, &[&album, &photo]).await?;
                whole &= found[0] == found[1];
            }
        }
        self.finish(in_flight).await?;
        Ok(whole)
    }

    /// A1, A2, and I2 of a commit that has ended.
    async fn after_the_end(&mut self) -> Result<(bool, bool), String> {
        let stage = self.stage;
        let alice = self.party(&stage.decides, &stage.beside);
        let bob = self.party(&stage.participates, &stage.beside);
        let (one, _) = self.add(&alice).await?;
        let (two, _) = self.add(&alice).await?;
        // An album is of the shard whose log the other host hears late.
        let bobs = self.look(&bob, &[&two]).await?;
        let hers = self.look(&alice, &[&one, &two]).await?;
        Ok((hers == [true, true], bobs == [true]))
    }

    fn judged(&self) -> (String, bool) {
        match check(&self.history, Model::ByLevel) {
            Ok(verdict) if verdict.holds() => {
                (format!("by-level: holds ({} operations)", self.history.operations().len()), true)
            }
            Ok(verdict) => (format!("BY-LEVEL IS VIOLATED: {verdict:?}"), false),
            Err(error) => (format!("the history cannot be judged: {error}"), false),
        }
    }
}

async fn commit(client: TxnClient, album: String, photo: String) -> Result<(), TxnError> {
    let write = |t: ordinate_client::Transaction| {
        t.put(album.as_str(), "1");
        t.put(photo.as_str(), "1");
        async { Ok::<_, TxnError>(()) }
    };
    client.transaction(write).await
}

/// A host of the demo.
pub(super) struct StageHost {
    pub(super) name: &'static str,
    /// Its native address.
    pub(super) endpoint: String,
    /// The shards of transactions that it leads.
    pub(super) leads: Vec<u16>,
}

/// Plays Table 1's rows at these levels. `delay` has two hosts send each other everything so much later.
///
/// # Errors
/// If a host does not run, or the machine is too busy to catch a commit half-way.
pub(super) async fn show(
    hosts: &[StageHost],
    shard_of: impl Fn(&str) -> u16,
    delay: impl Fn(&str, &str, Duration),
    rows: &[(TxnLevel, bool)],
    run: u64,
) -> Result<bool, String> {
    let mut why = "no key of two shards that different hosts lead was found: try again".to_owned();
    for decides in hosts {
        for participates in hosts.iter().filter(|host| host.name != decides.name) {
            let beside = hosts.iter().find(|host| ![decides.name, participates.name].contains(&host.name));
            let named = |kind: &str, host: &StageHost| {
                let mut names = (0..10_000).map(|number| format!("{kind}/{number}"));
                names.find(|name| host.leads.contains(&shard_of(name)))
            };
            let (Some(beside), Some(albums), Some(photos)) =
                (beside, named("album", decides), named("photo", participates))
            else {
                continue;
            };
            let stage = Stage {
                decides: decides.endpoint.clone(),
                participates: participates.endpoint.clone(),
                beside: beside.endpoint.clone(),
                albums,
                photos,
            };
            delay(decides.name, participates.name, DELAY);
            let played = match log_answers_soon(&stage).await {
                Ok(()) => {
                    println!(
                        "  what {} and {} send each other takes {} ms longer now: commits hang half-way",
                        decides.name,
                        participates.name,
                        DELAY.as_millis()
                    );
                    play_all(&stage, rows, run).await.map(Some)
                }
                Err(reason) => {
                    why = reason;
                    Ok(None)
                }
            };
            delay(decides.name, participates.name, Duration::ZERO);
            if let Some(holds) = played? {
                return Ok(holds);
            }
        }
    }
    Err(why)
}

async fn play_all(stage: &Stage, rows: &[(TxnLevel, bool)], run: u64) -> Result<bool, String> {
    let mut all = true;
    for (index, &(level, fences)) in rows.iter().enumerate() {
        let row = play(stage, level, fences, run * 100 + index as u64).await?;
        row.print(level, fences);
        all &= row.holds;
    }
    println!(
        "  I1: an album lists only photos that are there. I2: a worker finds each photo that it is sent"
    );
    println!(
        "  A1: Alice misses one of her photos. A2: Bob, called by Alice, misses hers. A3: he misses one that she saw in flight"
    );
    Ok(all)
}

/// The queue is not to go the delayed way: some of its roles may be on these hosts.
async fn log_answers_soon(stage: &Stage) -> Result<(), String> {
    let log = Log::connect([stage.beside.as_str()]);
    match log.create(QUEUE, 1 << 20, None).await {
        Ok(()) | Err(LogError::Exists(_)) => {}
        Err(error) => return Err(words(error)),
    }
    for _ in 0..3 {
        let asked = Instant::now();
        log.append(QUEUE, ["nothing"].into_iter().collect()).await.map_err(words)?;
        if asked.elapsed() < LOG_WITHIN {
            return Ok(());
        }
    }
    Err("the queue's own roles are on the hosts between which messages are delayed: try again".to_owned())
}

/// Plays all of it at one level.
async fn play(stage: &Stage, level: TxnLevel, fences: bool, run: u64) -> Result<Row, String> {
    let history = History::new().with_initial(0);
    let mut photos = Photos { stage, level, begun: Instant::now(), history, processes: 0, run, photo: 0 };
    let (a1, a2) = photos.after_the_end().await?;
    let i1 = photos.whole().await?;
    let i2 = photos.processed_in_flight(fences).await?;
    let a3 = photos.called_in_flight().await?;
    let (verdict, holds) = photos.judged();
    Ok(Row { i1, i2: i2 && a2, a1, a2, a3, verdict, holds })
}
