//! Plain data in a pickle of Python: numbers, texts, lists, tuples and dictionaries, which may be shared among each
//! other.
//!
//! The format is that of CPython's `Lib/pickletools.py`. Only the operations that make plain data are known: a pickle
//! that calls a function is refused, and nothing in it ever runs.

/// A number of a value in [`Pickle`].
type Id = usize;

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(i64),
    Text(String),
    /// Lists and tuples.
    Items(Vec<Id>),
    /// In the order in which they were set.
    Fields(Vec<(Id, Id)>),
    /// Nothing, truth, fractions, bytes: nobody asks for them.
    Other,
}

/// The values of a pickle. One that several others have is there once.
#[derive(Debug)]
pub(super) struct Pickle {
    nodes: Vec<Node>,
    root: Id,
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    pickle: &'a Pickle,
    id: Id,
}

impl<'a> Value<'a> {
    fn node(self) -> &'a Node {
        &self.pickle.nodes[self.id]
    }

    /// A field of a dictionary.
    pub(super) fn field(self, name: &str) -> Option<Value<'a>> {
        let Node::Fields(fields) = self.node() else { return None };
        let is_it = |(key, _): &&(Id, Id)| matches!(&self.pickle.nodes[*key], Node::Text(text) if text == name);
        fields.iter().rev().find(is_it).map(|&(_, id)| Value { id, ..self })
    }

    /// What is in a list or tuple; nothing of anything else.
    pub(super) fn items(self) -> impl Iterator<Item = Value<'a>> {
        let items = if let Node::Items(items) = self.node() { items.as_slice() } else { &[] };
        items.iter().map(move |&id| Value { id, ..self })
    }

    /// A whole number that is not below 0.
    pub(super) fn number(self) -> Option<u64> {
        if let Node::Number(number) = self.node() { u64::try_from(*number).ok() } else { None }
    }

    /// A text; the empty one of anything else.
    pub(super) fn text(self) -> &'a str {
        if let Node::Text(text) = self.node() { text } else { "" }
    }
}

impl Pickle {
    /// Reads a pickle, or says what in it can't be read.
    pub(super) fn read(bytes: &[u8]) -> Result<Pickle, String> {
        Machine { bytes, at: 0, nodes: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: Vec::new() }.run()
    }

    /// The value that was pickled.
    pub(super) fn root(&self) -> Value<'_> {
        Value { pickle: self, id: self.root }
    }
}

/// What runs the operations.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    /// Depths of the stack.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

impl<'a> Machine<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("it ends within the operation at byte {}", self.at))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A number of so many bytes.
    fn length(&mut self, bytes: usize) -> Result<usize, String> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |sum: usize, &byte| sum.checked_shl(8).unwrap_or(0) | usize::from(byte)))
    }

    fn push(&mut self, node: Node) {
        self.nodes.push(node);
        self.stack.push(self.nodes.len() - 1);
    }

    fn pop(&mut self) -> Result<Id, String> {
        self.stack.pop().ok_or_else(|| format!("there is no value for the operation at byte {}", self.at))
    }

    fn top(&mut self) -> Result<&mut Node, String> {
        let id =
            *self.stack.last().ok_or_else(|| format!("there is no value for the operation at byte {}", self.at))?;
        Ok(&mut self.nodes[id])
    }

    /// The values since the last mark.
    fn marked(&mut self) -> Result<Vec<Id>, String> {
        let depth = self.marks.pop().filter(|&depth| depth <= self.stack.len());
        let depth = depth.ok_or_else(|| format!("there is no mark for the operation at byte {}", self.at))?;
        Ok(self.stack.split_off(depth))
    }

    fn append(&mut self, more: Vec<Id>) -> Result<(), String> {
        let at = self.at;
        match self.top()? {
            Node::Items(items) => items.extend(more),
            _ => return Err(format!("the operation at byte {at} adds to what is no list")),
        }
        Ok(())
    }

    fn set(&mut self, pairs: Vec<Id>) -> Result<(), String> {
        let at = self.at;
        match self.top()? {
            Node::Fields(fields) => fields.extend(pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return Err(format!("the operation at byte {at} adds to what is no dictionary")),
        }
        Ok(())
    }

    fn remember(&mut self, at: usize) -> Result<(), String> {
        let id = *self.stack.last().ok_or("there is nothing to remember")?;
        if at > self.bytes.len() {
            return Err("it remembers more values than it has bytes".to_owned());
        }
        if self.memo.len() <= at {
            self.memo.resize(at + 1, None);
        }
        self.memo[at] = Some(id);
        Ok(())
    }

    fn recall(&mut self, at: usize) -> Result<(), String> {
        let id = self.memo.get(at).copied().flatten().ok_or("it recalls what it has not remembered")?;
        self.stack.push(id);
        Ok(())
    }

    fn text(&mut self, length_bytes: usize) -> Result<(), String> {
        let len = self.length(length_bytes)?;
        let text = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.push(Node::Text(text));
        Ok(())
    }

    fn other(&mut self, len: usize) -> Result<(), String> {
        self.take(len)?;
        self.push(Node::Other);
        Ok(())
    }

    /// What follows up to the end of the line: values of the first protocol are lines of ASCII.
    fn line(&mut self) -> Result<&'a str, String> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&byte| byte == b'\n');
        let len = len.ok_or_else(|| format!("it ends within the line at byte {}", self.at))?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).map_err(|_| format!("the line before byte {} is no text", self.at))
    }

    fn place(&mut self) -> Result<usize, String> {
        let line = self.line()?;
        line.parse().map_err(|_| format!("'{}' is no place of a value", line.escape_default()))
    }

    /// `12`, and `01` for truth; `12L` if it may be of any length.
    fn decimal(&mut self) -> Result<(), String> {
        let line = self.line()?;
        let number = line.trim_end_matches('L').parse().map_or(Node::Other, Node::Number);
        self.push(if matches!(line, "00" | "01") { Node::Other } else { number });
        Ok(())
    }

    /// A text with `\u12ab` for what a line can't have.
    fn escaped(&mut self) -> Result<(), String> {
        let mut text = String::new();
        let mut rest = self.line()?;
        while let Some(at) = rest.find("\\u") {
            let code = rest.get(at + 2..at + 6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            text.push_str(&rest[..at]);
            text.push(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = rest.get(at + 6..).unwrap_or_default();
        }
        self.push(Node::Text(text + rest));
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<(), String> {
        let depth = self.stack.len().checked_sub(len).ok_or("a tuple has more values than there are")?;
        let items = self.stack.split_off(depth);
        self.push(Node::Items(items));
        Ok(())
    }

    /// Whole numbers of any length, in two's complement; those beyond 64 bits are of no use here.
    fn long(&mut self, length_bytes: usize) -> Result<(), String> {
        let len = self.length(length_bytes)?;
        let digits = self.take(len)?;
        let negative = digits.last().is_some_and(|&last| last >= 0x80);
        let mut word = [if negative { 0xff } else { 0 }; 8];
        if digits.len() > 8 && digits[8..].iter().any(|&byte| byte != word[7]) {
            self.push(Node::Other);
            return Ok(());
        }
        let kept = digits.len().min(8);
        word[..kept].copy_from_slice(&digits[..kept]);
        self.push(Node::Number(i64::from_le_bytes(word)));
        Ok(())
    }

    fn run(mut self) -> Result<Pickle, String> {
        loop {
            match self.take(1)?[0] {
                // PROTO, FRAME
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                b'}' => self.push(Node::Fields(Vec::new())),
                b']' | b')' => self.push(Node::Items(Vec::new())),
                b'(' => self.marks.push(self.stack.len()),
                b'u' => {
                    let pairs = self.marked()?;
                    self.set(pairs)?;
                }
                b's' => {
                    let value = self.pop()?;
                    let pair = vec![self.pop()?, value];
                    self.set(pair)?;
                }
                b'e' => {
                    let items = self.marked()?;
                    self.append(items)?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b't' | b'l' => {
                    let items = self.marked()?;
                    self.push(Node::Items(items));
                }
                b'd' => {
                    let pairs = self.marked()?;
                    self.push(Node::Fields(Vec::new()));
                    self.set(pairs)?;
                }
                b'I' | b'L' => self.decimal()?,
                b'F' => {
                    self.line()?;
                    self.push(Node::Other);
                }
                b'V' => self.escaped()?,
                b'S' => {
                    let text = self.line()?.trim_matches(['\'', '"']).to_owned();
                    self.push(Node::Text(text));
                }
                b'p' => {
                    let at = self.place()?;
                    self.remember(at)?;
                }
                b'g' => {
                    let at = self.place()?;
                    self.recall(at)?;
                }
                0x85 => self.tuple(1)?,
                0x86 => self.tuple(2)?,
                0x87 => self.tuple(3)?,
                0x8c => self.text(1)?,
                b'X' => self.text(4)?,
                0x8d => self.text(8)?,
                b'K' => {
                    let number = self.length(1)? as i64;
                    self.push(Node::Number(number));
                }
                b'M' => {
                    let number = self.length(2)? as i64;
                    self.push(Node::Number(number));
                }
                b'J' => {
                    let number = self.length(4)? as u32 as i32;
                    self.push(Node::Number(number.into()));
                }
                0x8a => self.long(1)?,
                0x8b => self.long(4)?,
                b'N' | 0x88 | 0x89 => self.push(Node::Other),
                b'G' => self.other(8)?,
                b'C' => {
                    let len = self.length(1)?;
                    self.other(len)?;
                }
                b'B' => {
                    let len = self.length(4)?;
                    self.other(len)?;
                }
                0x94 => self.remember(self.memo.len())?,
                b'q' => {
                    let at = self.length(1)?;
                    self.remember(at)?;
                }
                b'r' => {
                    let at = self.length(4)?;
                    self.remember(at)?;
                }
                b'h' => {
                    let at = self.length(1)?;
                    self.recall(at)?;
                }
                b'j' => {
                    let at = self.length(4)?;
                    self.recall(at)?;
                }
                b'.' => {
                    let root = self.pop()?;
                    return Ok(Pickle { nodes: self.nodes, root });
                }
                operation => {
                    let at = self.at - 1;
                    return Err(format!("the operation {operation:#x} at byte {at} makes no plain data"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pickle.dumps({'a': shared, 'b': [shared, -3, None, 2.5], 'c': (1 << 40, True)}, protocol=4)` with
    /// `shared = ['x', 300]`, as CPython 3.11 writes it.
    const SHARED: &[u8] = b"\x80\x04\x95<\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(\x8c\x01x\x94M,\x01e\x8c\x01b\
        \x94]\x94(h\x02J\xfd\xff\xff\xffNG@\x04\x00\x00\x00\x00\x00\x00e\x8c\x01c\x94\x8a\x06\x00\x00\x00\x00\x00\x01\x88\x86\x94u.";

    #[test]
    fn shared_values_are_read_wherever_they_are() {
        let pickle = Pickle::read(SHARED).expect("is read");
        let of = |name| pickle.root().field(name).expect("is a field");
        for list in [of("a"), of("b").items().next().expect("the first")] {
            let items: Vec<_> = list.items().collect();
            assert_eq!((items[0].text(), items[1].number()), ("x", Some(300)));
        }
        assert_eq!(of("c").items().next().and_then(Value::number), Some(1 << 40));
        assert_eq!(of("b").items().nth(1).and_then(Value::number), None, "it is below 0");
        assert!(pickle.root().field("d").is_none());
    }

    /// The same in the first two protocols.
    #[test]
    fn pickles_of_the_first_protocols_are_read() {
        let lines = b"(dp0\nVa\np1\n(lp2\nVx\\u00e9\np3\naI300\nasVb\np4\n(lp5\ng2\naI-3\naNaF2.5\nasVc\np6\n(L1099511627776L\nI01\ntp7\ns.";
        let bytes = b"}q\x00(X\x01\0\0\0aq\x01]q\x02(X\x03\0\0\0x\xc3\xa9q\x03M,\x01eX\x01\0\0\0bq\x04]q\x05(h\x02J\xfd\xff\xff\xffN\
            G@\x04\0\0\0\0\0\0eX\x01\0\0\0cq\x06(L1099511627776L\nI01\ntq\x07u.";
        for pickled in [&lines[..], &bytes[..]] {
            let pickle = Pickle::read(pickled).expect("is read");
            let of = |name| pickle.root().field(name).expect("is a field");
            for list in [of("a"), of("b").items().next().expect("the first")] {
                let items: Vec<_> = list.items().collect();
                assert_eq!((items[0].text(), items[1].number()), ("x\u{e9}", Some(300)));
            }
            assert_eq!(of("c").items().map(Value::number).collect::<Vec<_>>(), [Some(1 << 40), None]);
            for end in 0..pickled.len() {
                assert!(Pickle::read(&pickled[..end]).is_err(), "{end}");
            }
        }
        for damaged in [&b"g9\n."[..], b"px\n.", b"p1\n.", b"d.", b"(I1\nd"] {
            assert!(Pickle::read(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn what_is_cut_off_or_calls_functions_is_refused() {
        for end in 0..SHARED.len() {
            assert!(Pickle::read(&SHARED[..end]).is_err(), "{end}");
        }
        // cos\nsystem\n is a call of a function.
        assert!(Pickle::read(b"cos\nsystem\n.").unwrap_err().contains("0x63 at byte 0"));
        assert!(
            Pickle::read(b"\x80\x04h\x05.").is_err() && Pickle::read(b"u.").is_err() && Pickle::read(b"a.").is_err()
        );
    }
}
