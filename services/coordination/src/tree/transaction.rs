//! What one step of a write comes to: the checks, in ZooKeeper's order, and the change that follows from them.
//!
//! Computed from [`Meta`]s alone, so that every shard that takes part in an operation computes the same.

use crate::tree::meta::{Kind, Meta};
use crate::wire::{
    Caller, Code, Create, EventKind, Mode, Permission, RestoredNode, Update, ZkSessionId, allowed, fixed,
    parent_of, plain, sequential_name, validate,
};
use kernel::planted;
use std::borrow::Cow;
use std::sync::Arc;

/// The longest time to live, in milliseconds.
const TTL_MAX: i64 = 0xff_ffff_ffff;
/// The longest name of a child, in bytes.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// True if every step reads and changes nothing but the node that it names.
pub(crate) fn are_separable(updates: &[Update<'_>]) -> bool {
    updates.iter().all(|update| match update {
        Update::SetData { .. } | Update::SetAcl { .. } | Update::Check { .. } | Update::CheckSame { .. } => {
            true
        }
        Update::Create(_) | Update::Delete { .. } | Update::Restore(_) => false,
    })
}

/// Where metas come from.
pub(crate) trait View {
    fn meta(&self, path: &str) -> Option<Meta>;
}

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) caller: &'a Caller<'a>,
    pub(crate) session: ZkSessionId,
    pub(crate) ttl_allowed: bool,
    pub(crate) gsn: u64,
    pub(crate) time: u64,
}

/// What is to become of a node, and of its parent.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) path: Cow<'a, str>,
    /// What is announced to those who watch the node; nothing is announced of ACLs.
    pub(crate) event: Option<EventKind>,
    pub(crate) before: Option<Meta>,
    pub(crate) after: Option<Meta>,
    /// Its new data.
    pub(crate) data: Option<Option<&'a [u8]>>,
    /// The parent as it is after a coming or going.
    pub(crate) parent: Option<Meta>,
}

/// What the user is answered.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<'a> {
    /// A node, with its meta if the request asked for it.
    Created(Cow<'a, str>, Option<Meta>),
    Deleted,
    /// Data or ACL were set.
    Set(Meta),
    Checked,
    Restored,
}

/// A version after the present one. Never -1, which stands for "any".
pub(crate) fn following(version: i32) -> i32 {
    match version.wrapping_add(1) {
        -1 => 0,
        next => next,
    }
}

/// The version after the present one, if that is the one that is expected.
fn next_version(found: i32, expected: i32) -> Result<i32, Code> {
    if expected != -1 && expected != found && !planted!(version_not_checked_at_execution) {
        return Err(Code::BadVersion);
    }
    Ok(following(found))
}

/// Checks a step and says what it changes.
pub(crate) fn plan<'a>(
    update: &Update<'a>,
    view: &impl View,
    writer: &Writer<'_>,
) -> Result<(Option<Change<'a>>, Outcome<'a>), Code> {
    match update {
        Update::Create(create) => plan_create(create, view, writer),
        Update::Delete { path, version } => plan_delete(path, *version, view, writer),
        Update::SetData { path, data, version } => {
            let before = existing(path, view)?;
            allowed(&before.acl, Permission::WRITE, writer.caller)?;
            let after = Meta {
                version: next_version(before.version, *version)?,
                mzxid: writer.gsn,
                mtime: writer.time,
                data_len: data.map_or(0, <[u8]>::len) as u32,
                creates: if planted!(write_resets_child_counter) { 0 } else { before.creates },
                ..before.clone()
            };
            Ok(changed(path, Some(EventKind::DataChanged), before, after, Some(*data)))
        }
        Update::Restore(restore) => plan_restore(restore, view, writer),
        Update::SetAcl { path, acl, version } => {
            validate(path)?;
            let acl = fixed(acl, writer.caller)?;
            let before = existing(path, view)?;
            if !planted!(list_set_without_right) {
                allowed(&before.acl, Permission::ADMIN, writer.caller)?;
            }
            let aversion = next_version(before.aversion, *version)?;
            let after = Meta { aversion, acl: acl.into(), ..before.clone() };
            Ok(changed(path, None, before, after, None))
        }
        Update::Check { path, version } => {
            let found = existing(path, view)?;
            allowed(&found.acl, Permission::READ, writer.caller)?;
            if !planted!(check_ignores_version) {
                next_version(found.version, *version)?;
            }
            Ok((None, Outcome::Checked))
        }
        Update::CheckSame { path, czxid, mzxid, aversion } => {
            let found = existing(path, view)?;
            allowed(&found.acl, Permission::READ, writer.caller)?;
            let same =
                (found.czxid as i64, found.mzxid as i64, found.aversion) == (*czxid, *mzxid, *aversion);
            if same { Ok((None, Outcome::Checked)) } else { Err(Code::BadVersion) }
        }
    }
}

fn existing(path: &str, view: &impl View) -> Result<Meta, Code> {
    validate(path)?;
    view.meta(path).ok_or(Code::NoNode)
}

fn changed<'a>(
    path: &'a str,
    event: Option<EventKind>,
    before: Meta,
    after: Meta,
    data: Option<Option<&'a [u8]>>,
) -> (Option<Change<'a>>, Outcome<'a>) {
    let outcome = Outcome::Set(after.clone());
    let (before, after) = (Some(before), Some(after));
    (Some(Change { path: Cow::Borrowed(path), event, before, after, data, parent: None }), outcome)
}

fn kind_of(create: &Create<'_>, writer: &Writer<'_>) -> Result<Kind, Code> {
    let (mode, _) = Mode::of_flags(create.flags).ok_or(Code::BadArguments)?;
    if mode == Mode::Ttl && !writer.ttl_allowed {
        return Err(Code::Unimplemented);
    }
    let ttl_fits = if mode == Mode::Ttl { (1..=TTL_MAX).contains(&create.ttl) } else { create.ttl < 0 };
    if !ttl_fits {
        return Err(Code::BadArguments);
    }
    Ok(match mode {
        Mode::Persistent => Kind::Persistent,
        Mode::Ephemeral => Kind::Ephemeral(writer.session),
        Mode::Container => Kind::Container,
        Mode::Ttl => Kind::Ttl(create.ttl as u64),
    })
}

fn plan_create<'a>(
    create: &Create<'a>,
    view: &impl View,
    writer: &Writer<'_>,
) -> Result<(Option<Change<'a>>, Outcome<'a>), Code> {
    let kind = kind_of(create, writer)?;
    let parent_path = parent_of(create.path).ok_or(Code::BadArguments)?;
    if create.path.contains('\0') {
        return Err(Code::BadArguments);
    }
    let acl = fixed(&create.acl, writer.caller)?;
    let parent = view.meta(parent_path).ok_or(Code::NoNode)?;
    allowed(&parent.acl, Permission::CREATE, writer.caller)?;
    let path: Cow<'a, str> = if create.is_sequential() {
        sequential_name(
            create.path,
            if planted!(sequential_names_by_child_count) { parent.children as i32 } else { parent.creates },
        )
        .into()
    } else {
        create.path.into()
    };
    validate(&path)?;
    if crate::wire::name_of(&path).len() > NAME_BYTES_MAX {
        return Err(Code::BadArguments);
    }
    if view.meta(&path).is_some() {
        return Err(Code::NodeExists);
    }
    if matches!(parent.kind, Kind::Ephemeral(_)) {
        return Err(Code::NoChildrenForEphemerals);
    }
    let after = Meta {
        czxid: writer.gsn,
        mzxid: writer.gsn,
        pzxid: writer.gsn,
        ctime: writer.time,
        mtime: writer.time,
        version: 0,
        creates: 0,
        aversion: 0,
        kind,
        children: 0,
        data_len: create.data.map_or(0, <[u8]>::len) as u32,
        acl: Arc::from(acl),
    };
    let parent = Meta {
        pzxid: writer.gsn,
        creates: parent.creates.wrapping_add(1),
        children: parent.children + 1,
        ..parent
    };
    let outcome = Outcome::Created(path.clone(), create.with_stat.then(|| after.clone()));
    let change = Change {
        path,
        event: Some(EventKind::Created),
        before: None,
        after: Some(after),
        data: Some(create.data),
        parent: Some(parent),
    };
    Ok((Some(change), outcome))
}

/// A new node needs CREATE at its parent, one that is there WRITE and ADMIN. The parent's counter stays: it is restored itself.
fn plan_restore<'a>(
    restore: &RestoredNode<'a>,
    view: &impl View,
    writer: &Writer<'_>,
) -> Result<(Option<Change<'a>>, Outcome<'a>), Code> {
    validate(restore.path)?;
    let kind = match (Mode::of_flags(restore.flags), restore.ttl) {
        (Some((Mode::Persistent, false)), -1) => Kind::Persistent,
        (Some((Mode::Container, false)), -1) => Kind::Container,
        (Some((Mode::Ttl, false)), ttl @ 1..=TTL_MAX) => Kind::Ttl(ttl as u64),
        _ => return Err(Code::BadArguments),
    };
    if matches!(kind, Kind::Ttl(_)) && !writer.ttl_allowed {
        return Err(Code::Unimplemented);
    }
    let (Ok(ctime), Ok(mtime)) = (u64::try_from(restore.ctime), u64::try_from(restore.mtime)) else {
        return Err(Code::BadArguments);
    };
    let acl = plain(&restore.acl)?;
    if crate::wire::name_of(restore.path).len() > NAME_BYTES_MAX {
        return Err(Code::BadArguments);
    }
    let before = view.meta(restore.path);
    let parent = match (&before, parent_of(restore.path)) {
        (Some(before), _) => {
            allowed(&before.acl, Permission::WRITE, writer.caller)?;
            allowed(&before.acl, Permission::ADMIN, writer.caller)?;
            if before.kind != kind {
                return Err(Code::NodeExists);
            }
            None
        }
        (None, None) => return Err(Code::BadArguments),
        (None, Some(parent)) => {
            let parent = view.meta(parent).ok_or(Code::NoNode)?;
            allowed(&parent.acl, Permission::CREATE, writer.caller)?;
            if matches!(parent.kind, Kind::Ephemeral(_)) {
                return Err(Code::NoChildrenForEphemerals);
            }
            Some(Meta { pzxid: writer.gsn, children: parent.children + 1, ..parent })
        }
    };
    let after = Meta {
        czxid: before.as_ref().map_or(writer.gsn, |before| before.czxid),
        mzxid: writer.gsn,
        pzxid: writer.gsn,
        ctime,
        mtime,
        version: restore.version,
        creates: restore.creates,
        aversion: restore.aversion,
        kind,
        children: before.as_ref().map_or(0, |before| before.children),
        data_len: restore.data.map_or(0, <[u8]>::len) as u32,
        acl: acl.into(),
    };
    let event = Some(if before.is_some() { EventKind::DataChanged } else { EventKind::Created });
    let (path, data) = (Cow::Borrowed(restore.path), Some(restore.data));
    Ok((Some(Change { path, event, before, after: Some(after), data, parent }), Outcome::Restored))
}

/// Nodes that are always there.
pub(crate) const ESSENTIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

fn plan_delete<'a>(
    path: &'a str,
    version: i32,
    view: &impl View,
    writer: &Writer<'_>,
) -> Result<(Option<Change<'a>>, Outcome<'a>), Code> {
    let parent_path = parent_of(path).ok_or(Code::BadArguments)?;
    if path.contains('\0') || ESSENTIAL.contains(&path) {
        return Err(Code::BadArguments);
    }
    let parent = view.meta(parent_path).ok_or(Code::NoNode)?;
    allowed(&parent.acl, Permission::DELETE, writer.caller)?;
    let before = view.meta(path).ok_or(Code::NoNode)?;
    let found = if planted!(deletion_compares_list_version) { before.aversion } else { before.version };
    next_version(found, version)?;
    if before.children > 0 {
        return Err(Code::NotEmpty);
    }
    Ok((Some(removal(path, before, parent, writer.gsn)), Outcome::Deleted))
}

/// The going of a node without children.
pub(crate) fn removal(path: &str, before: Meta, parent: Meta, gsn: u64) -> Change<'_> {
    let parent = Meta { pzxid: gsn, children: parent.children.saturating_sub(1), ..parent };
    Change {
        path: Cow::Borrowed(path),
        event: Some(EventKind::Deleted),
        before: Some(before),
        after: None,
        data: None,
        parent: Some(parent),
    }
}
