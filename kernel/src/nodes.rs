//! The macros that put roles and nodes together: a family's messages, and what a host runs.

/// Declares a sum of messages, by who is to receive them or whose they are, with its codec and the way in and out of it.
///
/// Tags are the wire format: never reused.
#[macro_export]
macro_rules! sum {
    (
        $(#[$enum_doc:meta])*
        $vis:vis enum $Message:ident { $( $(#[$doc:meta])* $tag:literal => $Name:ident($In:ty) ),+ $(,)? }
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, PartialEq, Debug)]
        $vis enum $Message {
            $( $(#[$doc])* $Name($In) ),+
        }

        impl $crate::Encode for $Message {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$Name(message) => {
                        out.push($tag);
                        $crate::Encode::encode(message, out);
                    } )+
                }
            }
        }

        impl $crate::Decode for $Message {
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                match <u8 as $crate::Decode>::decode(input)? {
                    $( $tag => <$In as $crate::Decode>::decode(input).map(Self::$Name), )+
                    tag => Err($crate::DecodeError::UnknownTag(stringify!($Message), tag)),
                }
            }
        }
    };
}

/// Declares what a host runs: an enum of roles of a family and of nodes ([`crate::Embedded`] ones, or other enums declared so), with
/// every call passed to the one at hand. A new kind of node is one line.
///
/// A `role` is sent what its [`crate::Role::In`] can be made of (`TryFrom` of the family's message), and is followed by its name.
///
/// ```text
/// kernel::nodes! {
///     /// What a host of the test runs.
///     pub enum Seat of Mason {
///         /// A role of the cluster.
///         node Member(Box<Member<Spaces, Labels, Gateway>>),
///         /// A user's connection.
///         role Socket(Socket) "socket",
///     }
/// }
/// ```
#[macro_export]
macro_rules! nodes {
    (
        $(#[$enum_doc:meta])*
        $vis:vis enum $Name:ident $([$($generics:tt)*] [$($params:tt)*])? of $Family:ty {
            $( $(#[$doc:meta])* $kind:ident $Variant:ident($Held:ty) $($role_name:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$enum_doc])*
        $vis enum $Name $(<$($generics)*>)? {
            $( $(#[$doc])* $Variant($Held) ),+
        }

        impl $(<$($generics)*>)? $crate::Node for $Name $(<$($params)*>)? {
            type Family = $Family;

            fn restore(
                &mut self,
                position: $crate::Position,
                record: $crate::Bytes,
            ) -> Result<(), $crate::DecodeError> {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind restore held position record), )+
                }
            }

            fn on_start(&mut self, situation: $crate::Situation<'_>, effects: &mut $crate::Effects<$Family>) {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind on_start held situation effects), )+
                }
            }

            #[inline]
            fn on_message(
                &mut self,
                from: $crate::NodeId,
                message: <$Family as $crate::Family>::Message,
                situation: $crate::Situation<'_>,
                effects: &mut $crate::Effects<$Family>,
            ) {
                match self {
                    $( Self::$Variant(held) => {
                        $crate::__held!($kind on_message held from message situation effects)
                    } )+
                }
            }

            #[inline]
            fn on_timer(
                &mut self,
                timer: $crate::TimerIndex,
                situation: $crate::Situation<'_>,
                effects: &mut $crate::Effects<$Family>,
            ) {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind on_timer held timer situation effects), )+
                }
            }

            fn on_request(
                &mut self,
                id: $crate::RequestId,
                request: <$Family as $crate::Family>::Request,
                situation: $crate::Situation<'_>,
                effects: &mut $crate::Effects<$Family>,
            ) {
                match self {
                    $( Self::$Variant(held) => {
                        $crate::__held!($kind on_request held id request situation effects)
                    } )+
                }
            }

            fn on_blob(
                &mut self,
                notice: $crate::BlobNotice,
                situation: $crate::Situation<'_>,
                effects: &mut $crate::Effects<$Family>,
            ) {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind on_blob held notice situation effects), )+
                }
            }

            #[inline]
            fn on_burst_end(&mut self, situation: $crate::Situation<'_>, effects: &mut $crate::Effects<$Family>) {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind on_burst_end held situation effects), )+
                }
            }

            fn role_name(&self) -> &'static str {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind role_name held $($role_name)?), )+
                }
            }

            fn awaited_timers(&self, me: $crate::NodeId) -> $crate::AwaitedTimers {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind awaited_timers held me), )+
                }
            }

            fn statement(&self) -> $crate::Statement {
                match self {
                    $( Self::$Variant(held) => $crate::__held!($kind statement held), )+
                }
            }
        }
    };
}

/// One call of [`nodes!`] to what a variant holds, boxed or not.
#[doc(hidden)]
#[macro_export]
macro_rules! __held {
    (role restore $held:ident $position:ident $record:ident) => {{
        use $crate::Role as _;
        $held.restore($position, $crate::Decode::decoded(&$record)?);
        Ok(())
    }};
    (role on_message $held:ident $from:ident $message:ident $situation:ident $effects:ident) => {{
        use $crate::Role as _;
        match TryFrom::try_from($message) {
            Ok(message) => $held.on_message($from, message, &mut $crate::Cx::new($situation, $effects)),
            Err(_) => $effects.reject("message for another role"),
        }
    }};
    (role on_timer $held:ident $timer:ident $situation:ident $effects:ident) => {{
        use $crate::Role as _;
        let expected = "a driver returns only timers that this role has set";
        $held.on_timer(
            $crate::TimerKey::from_index($timer).expect(expected),
            &mut $crate::Cx::new($situation, $effects),
        )
    }};
    (role role_name $held:ident $name:literal) => {{
        let _ = $held;
        $name
    }};
    (role on_request $held:ident $id:ident $request:ident $situation:ident $effects:ident) => {{
        use $crate::Role as _;
        $held.on_request($id, $request, &mut $crate::Cx::new($situation, $effects))
    }};
    (role on_blob $held:ident $notice:ident $situation:ident $effects:ident) => {{
        use $crate::Role as _;
        $held.on_blob($notice, &mut $crate::Cx::new($situation, $effects))
    }};
    (role $call:ident $held:ident $situation:ident $effects:ident) => {{
        use $crate::Role as _;
        $held.$call(&mut $crate::Cx::new($situation, $effects))
    }};
    (node restore $held:ident $position:ident $record:ident) => {{
        use $crate::Node as _;
        $held.restore($position, $record)
    }};
    (role awaited_timers $held:ident $me:ident) => {{
        use $crate::Role as _;
        $held.awaited_timers($me)
    }};
    (role statement $held:ident) => {{
        use $crate::Role as _;
        $held.statement()
    }};
    (node statement $held:ident) => {{
        use $crate::Node as _;
        $held.statement()
    }};
    (node role_name $held:ident) => {{
        use $crate::Node as _;
        $held.role_name()
    }};
    (node $call:ident $held:ident $($argument:ident)+) => {{
        use $crate::Node as _;
        $held.$call($($argument),+)
    }};
}
