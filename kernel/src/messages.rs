//! The macros that declare messages and numbers with a meaning.

/// Declares what a role can be sent: one struct a message, and the enum over them with its codec.
///
/// Tags are written out, because they are the wire format and never reused.
///
/// ```
/// pub enum Message { Acceptor(AcceptorIn) }
/// kernel::messages! {
///     /// What an acceptor can be sent.
///     pub enum AcceptorIn in Message::Acceptor {
///         /// Promise not to vote below `ballot`.
///         1 => Phase1a {
///             /// The ballot to promise.
///             ballot: u64,
///         },
///         /// What do you know?
///         2 => Probe {},
///     }
/// }
/// use kernel::{Bytes, Decode, Encode};
/// let sent = AcceptorIn::from(Phase1a { ballot: 3 });
/// assert_eq!(AcceptorIn::decoded(&Bytes::from(sent.encoded())), Ok(sent));
/// ```
///
/// A role that is also sent messages which are declared elsewhere lists them behind `and`. A role that many senders write to
/// has an enum for each, `of` a variant of its [`inbox!`](crate::inbox).
#[macro_export]
macro_rules! messages {
    (
        $(#[$enum_doc:meta])*
        pub enum $Enum:ident of $Inbox:ident::$Sender:ident in $Family:ident::$Variant:ident {
            $(
                $(#[$doc:meta])*
                $tag:literal => $Message:ident { $($fields:tt)* }
            ),+ $(,)?
        }
    ) => {
        $crate::messages! {
            $(#[$enum_doc])*
            pub enum $Enum {
                $( $(#[$doc])* $tag => $Message { $($fields)* } ),+
            }
        }

        impl $Enum {
            /// The tags of its messages.
            pub const TAGS: &'static [u8] = &[ $($tag),+ ];
        }

        $(
            impl From<$Message> for $Inbox {
                fn from(message: $Message) -> Self {
                    Self::$Sender($Enum::$Message(message))
                }
            }

            impl From<$Message> for $Family {
                fn from(message: $Message) -> Self {
                    Self::$Variant($Inbox::$Sender($Enum::$Message(message)))
                }
            }
        )+
    };
    (
        $(#[$enum_doc:meta])*
        pub enum $Enum:ident in $Family:ident::$Variant:ident {
            $(
                $(#[$doc:meta])*
                $tag:literal => $Message:ident { $( $(#[$field_doc:meta])* $field:ident : $Type:ty ),* $(,)? }
            ),+ $(,)?
        }
        $( and { $( $(#[$other_doc:meta])* $other_tag:literal => $Other:ident ),+ $(,)? } )?
    ) => {
        $crate::messages! {
            $(#[$enum_doc])*
            pub enum $Enum {
                $( $(#[$doc])* $tag => $Message { $( $(#[$field_doc])* $field : $Type ),* } ),+
            }
            $( and { $( $(#[$other_doc])* $other_tag => $Other ),+ } )?
        }

        $(
            impl From<$Message> for $Family {
                fn from(message: $Message) -> Self {
                    Self::$Variant($Enum::$Message(message))
                }
            }
        )+
        $( $(
            impl From<$Other> for $Family {
                fn from(message: $Other) -> Self {
                    Self::$Variant($Enum::$Other(message))
                }
            }
        )+ )?
    };
    (
        $(#[$enum_doc:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$doc:meta])*
                $tag:literal => $Message:ident { $( $(#[$field_doc:meta])* $field:ident : $Type:ty ),* $(,)? }
            ),+ $(,)?
        }
        $( and { $( $(#[$other_doc:meta])* $other_tag:literal => $Other:ident ),+ $(,)? } )?
    ) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug)]
            pub struct $Message { $( $(#[$field_doc])* pub $field: $Type ),* }

            impl $crate::Encode for $Message {
                #[allow(unused_variables)]
                fn encode(&self, out: &mut Vec<u8>) {
                    $( $crate::Encode::encode(&self.$field, out); )*
                }
            }

            impl $crate::Decode for $Message {
                #[allow(unused_variables)]
                fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                    Ok(Self { $( $field: input.field::<$Type>()? ),* })
                }
            }

            impl From<$Message> for $Enum {
                fn from(message: $Message) -> Self {
                    Self::$Message(message)
                }
            }
        )+
        $( $(
            impl From<$Other> for $Enum {
                fn from(message: $Other) -> Self {
                    Self::$Other(message)
                }
            }
        )+ )?

        $(#[$enum_doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub enum $Enum {
            $( $(#[$doc])* $Message($Message), )+
            $( $( $(#[$other_doc])* $Other($Other), )+ )?
        }

        impl $crate::Encode for $Enum {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Message(message) => {
                        out.push($tag);
                        $crate::Encode::encode(message, out);
                    } )+
                    $( $( Self::$Other(message) => {
                        out.push($other_tag);
                        $crate::Encode::encode(message, out);
                    } )+ )?
                }
            }
        }

        impl $crate::Decode for $Enum {
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                match <u8 as $crate::Decode>::decode(input)? {
                    $( $tag => <$Message as $crate::Decode>::decode(input).map(Self::$Message), )+
                    $( $( $other_tag => <$Other as $crate::Decode>::decode(input).map(Self::$Other), )+ )?
                    tag => Err($crate::DecodeError::UnknownTag(stringify!($Enum), tag)),
                }
            }
        }
    };
}

/// Declares what a role can be sent, by who sends it: an enum of enums that [`messages!`](crate::messages) declares `of` it.
///
/// On the wire, and in what is printed, it is one list: the senders' tags are distinct, which is checked when this is compiled.
///
/// ```
/// pub enum Message { Scribe(ScribeIn) }
/// kernel::inbox! {
///     /// What a scribe can be sent.
///     pub enum ScribeIn {
///         /// By authors.
///         Author(FromAuthor),
///         /// By readers.
///         Reader(FromReader),
///     }
/// }
/// kernel::messages! {
///     /// What an author sends a scribe.
///     pub enum FromAuthor of ScribeIn::Author in Message::Scribe {
///         /// Write this down.
///         1 => Write {
///             /// What.
///             what: u64,
///         },
///     }
/// }
/// kernel::messages! {
///     /// What a reader sends a scribe.
///     pub enum FromReader of ScribeIn::Reader in Message::Scribe {
///         /// Show all.
///         2 => Show {},
///     }
/// }
/// use kernel::{Bytes, Decode, Encode};
/// let sent = ScribeIn::from(Show {});
/// assert_eq!(sent.encoded(), [2]);
/// assert_eq!(ScribeIn::decoded(&Bytes::from(sent.encoded())), Ok(ScribeIn::Reader(FromReader::Show(Show {}))));
/// assert_eq!(format!("{sent:?}"), "Show(Show)");
/// ```
#[macro_export]
macro_rules! inbox {
    (
        $(#[$enum_doc:meta])*
        pub enum $Inbox:ident { $( $(#[$doc:meta])* $Sender:ident($From:ty) ),+ $(,)? }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, PartialEq)]
        pub enum $Inbox {
            $( $(#[$doc])* $Sender($From) ),+
        }

        const _: () = assert!($crate::are_distinct(&[ $(<$From>::TAGS),+ ]), "two senders' messages share a tag");

        impl std::fmt::Debug for $Inbox {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $( Self::$Sender(message) => std::fmt::Debug::fmt(message, f), )+
                }
            }
        }

        impl $crate::Encode for $Inbox {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Sender(message) => $crate::Encode::encode(message, out), )+
                }
            }
        }

        impl $crate::Decode for $Inbox {
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                let tag = input.next_tag()?;
                $(
                    if <$From>::TAGS.contains(&tag) {
                        return <$From as $crate::Decode>::decode(input).map(Self::$Sender);
                    }
                )+
                Err($crate::DecodeError::UnknownTag(stringify!($Inbox), tag))
            }
        }
    };
}

/// True if no tag occurs twice in these lists.
pub const fn are_distinct(lists: &[&[u8]]) -> bool {
    let mut seen = [false; 256];
    let mut list = 0;
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            let tag = lists[list][at] as usize;
            if seen[tag] {
                return false;
            }
            seen[tag] = true;
            at += 1;
        }
        list += 1;
    }
    true
}

/// Declares the roles of one protocol family: the enum of its messages (by receiving role), and the enum of its roles
/// that a driver hosts, with every call passed to the role at hand.
///
/// Tags are the wire format: never reused.
#[macro_export]
macro_rules! family {
    (
        $(#[$message_doc:meta])*
        messages $Message:ident;
        $(#[$member_doc:meta])*
        members $Member:ident [$($generics:tt)*] [$($params:tt)*] of $Family:ty {
            $( $(#[$doc:meta])* $tag:literal => $Name:ident($In:ty, $Role:ty, $role_name:literal) ),+ $(,)?
        }
    ) => {
        $crate::sum! {
            $(#[$message_doc])*
            pub enum $Message {
                $( #[doc = concat!("To a ", $role_name, ".")] $tag => $Name($In) ),+
            }
        }

        // What each role is sent, out of what travels.
        $(
            impl TryFrom<$Message> for $In {
                type Error = $Message;

                fn try_from(message: $Message) -> Result<Self, $Message> {
                    match message {
                        $Message::$Name(message) => Ok(message),
                        other => Err(other),
                    }
                }
            }
        )+

        $crate::nodes! {
            $(#[$member_doc])*
            pub enum $Member [$($generics)*] [$($params)*] of $Family {
                $( $(#[$doc])* role $Name($Role) $role_name ),+
            }
        }
    };
}

/// Declares a number with a meaning: a newtype over an integer, with codec, order, `next` and display.
#[macro_export]
macro_rules! number {
    ($(#[$doc:meta])* pub struct $Name:ident($int:ty);) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $Name(pub $int);

        impl $Name {
            /// The number after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The number `count` further.
            #[must_use]
            pub fn plus(self, count: $int) -> Self {
                Self(self.0 + count)
            }
        }

        impl std::fmt::Debug for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl $crate::Encode for $Name {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::Encode::encode(&self.0, out);
            }
        }

        impl $crate::Decode for $Name {
            #[inline]
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                <$int as $crate::Decode>::decode(input).map(Self)
            }
        }
    };
}

/// Declares a plain structure with its codec (fields in order; a new field comes last and is an `Option`).
#[macro_export]
macro_rules! record {
    (
        $(#[$doc:meta])*
        $vis:vis struct $Name:ident { $( $(#[$field_doc:meta])* $field:ident : $Type:ty ),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        $vis struct $Name { $( $(#[$field_doc])* pub $field: $Type ),* }

        impl $crate::Encode for $Name {
            fn encode(&self, out: &mut Vec<u8>) {
                $( $crate::Encode::encode(&self.$field, out); )*
            }
        }

        impl $crate::Decode for $Name {
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $( $field: input.field::<$Type>()? ),* })
            }
        }
    };
}

/// Declares a role's timers: a fieldless enum whose variants number themselves.
#[macro_export]
macro_rules! timers {
    (
        $(#[$enum_doc:meta])*
        pub enum $Name:ident { $( $(#[$doc:meta])* $Variant:ident ),* $(,)? }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $Name { $( $(#[$doc])* $Variant ),* }

        impl $crate::TimerKey for $Name {
            fn index(self) -> $crate::TimerIndex {
                $crate::TimerIndex(self as u8)
            }

            fn from_index(index: $crate::TimerIndex) -> Option<Self> {
                const ALL: &[$Name] = &[ $( $Name::$Variant ),* ];
                ALL.get(usize::from(index.0)).copied()
            }
        }
    };
}
