//! Values by number, so that histories compare words and not texts.

use crate::hash::FixedState;
use crate::terms::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A value of an [`Interner`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(pub u32);

impl Symbol {
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Numbers values in the order they are first met.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    values: Vec<Value>,
    numbers: HashMap<i64, Symbol, FixedState>,
    texts: HashMap<Arc<str>, Symbol, FixedState>,
    nil: Option<Symbol>,
}

impl Interner {
    /// The number of `value`, new or known.
    pub fn intern(&mut self, value: &Value) -> Symbol {
        if let Some(known) = self.find(value) {
            return known;
        }
        let symbol = Symbol(self.values.len() as u32);
        match value {
            Value::Nil => self.nil = Some(symbol),
            Value::Int(number) => {
                self.numbers.insert(*number, symbol);
            }
            Value::Text(text) => {
                self.texts.insert(text.clone(), symbol);
            }
        }
        self.values.push(value.clone());
        symbol
    }

    /// The number of `value`, if it was ever interned.
    pub fn find(&self, value: &Value) -> Option<Symbol> {
        match value {
            Value::Nil => self.nil,
            Value::Int(number) => self.numbers.get(number).copied(),
            Value::Text(text) => self.texts.get(text).copied(),
        }
    }

    /// The value behind a number. Panics on a symbol of another interner.
    pub fn value(&self, symbol: Symbol) -> &Value {
        &self.values[symbol.at()]
    }

    /// How many values are known.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True before the first.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
