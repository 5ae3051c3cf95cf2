//! Plain data in a pickle of Python: numbers, texts, lists, tuples and dictionaries, which may be shared among each
//! other.
//!
//! The format is that of CPython's `Lib/pickletools.py`, protocols 0 to 5. Only the operations that make plain data are
//! known: a pickle that calls a function is refused, and nothing in it ever runs.

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

    /// The argument of an operation of protocol 0, which ends with its line.
    fn line(&mut self) -> Result<&'a [u8], String> {
        let len = self.bytes[self.at..].iter().position(|&byte| byte == b'\n');
        let len = len.ok_or_else(|| format!("it ends within the operation at byte {}", self.at))?;
        let line = self.take(len)?;
        self.at += 1;
        Ok(line)
    }

    /// A whole number as a line, whose end may say that it is a long one. Those beyond 64 bits are of no use here.
    fn decimal(&mut self) -> Result<Option<i64>, String> {
        let at = self.at;
        let line = self.line()?;
        let text = str::from_utf8(line.strip_suffix(b"L").unwrap_or(line)).unwrap_or("");
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(format!("at byte {at} there is no number"));
        }
        Ok(text.parse().ok())
    }

    /// A place that values are remembered at, as a line.
    fn place(&mut self) -> Result<usize, String> {
        let at = self.at;
        let place = self.decimal()?.and_then(|place| usize::try_from(place).ok());
        place.ok_or_else(|| format!("at byte {at} there is no place"))
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

    fn whole_number(&mut self) -> Result<(), String> {
        let number = self.decimal()?;
        self.push(number.map_or(Node::Other, Node::Number));
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
                0x8e => {
                    let len = self.length(8)?;
                    self.other(len)?;
                }
                0x96 => {
                    let len = self.length(8)?;
                    self.other(len)?;
                }
                // Protocol 0. Truth is a number there, of two digits.
                b'I' => match self.bytes[self.at..].get(..3) {
                    Some(b"00\n" | b"01\n") => self.other(3)?,
                    _ => self.whole_number()?,
                },
                b'L' => self.whole_number()?,
                b'F' => {
                    self.line()?;
                    self.push(Node::Other);
                }
                b'V' => {
                    let text = raw_unicode(self.line()?);
                    self.push(Node::Text(text));
                }
                // Texts of Python 2.
                b'S' => {
                    let line = self.line()?;
                    let at = self.at;
                    let text = quoted(line).ok_or_else(|| format!("the text before byte {at} has no end"))?;
                    self.push(Node::Text(text));
                }
                b'U' => self.text(1)?,
                b'T' => self.text(4)?,
                b'd' => {
                    let pairs = self.marked()?;
                    self.push(Node::Fields(Vec::new()));
                    self.set(pairs)?;
                }
                b'p' => {
                    let at = self.place()?;
                    self.remember(at)?;
                }
                b'g' => {
                    let at = self.place()?;
                    self.recall(at)?;
                }
                b'0' => drop(self.pop()?),
                b'1' => drop(self.marked()?),
                b'2' => {
                    let id = self.pop()?;
                    self.stack.extend([id, id]);
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

/// A text whose characters are bytes, or `\\uXXXX` and `\\UXXXXXXXX` where a byte does not do.
fn raw_unicode(line: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let number =
            rest.get(2..2 + digits).and_then(|digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        match number.and_then(char::from_u32) {
            Some(character) if digits > 0 => {
                text.push(character);
                rest = &rest[2 + digits..];
            }
            _ => {
                text.push(char::from(byte));
                rest = after;
            }
        }
    }
    text
}

/// A text in the quotes of Python's `repr`, whose bytes are those of UTF-8. `None` if it is in none.
fn quoted(line: &[u8]) -> Option<String> {
    let (&quote, rest) = line.split_first()?;
    let inner = rest.strip_suffix(&[quote]).filter(|_| matches!(quote, b'\'' | b'"'))?;
    let mut bytes = Vec::new();
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, len) = match (byte, after) {
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'x', high, low, ..]) => (u8::from_str_radix(str::from_utf8(&[*high, *low]).ok()?, 16).ok()?, 4),
            (b'\\', [other, ..]) => (*other, 2),
            _ => (byte, 1),
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
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

    /// The same by every protocol of CPython 3.11, made by `pickle.dumps({'é€': [-3, 70000, True, 0.5, 1 << 70], 'n': ('a\\n',)}, protocol)`;
    /// and a text as Python 2.7 writes it.
    #[test]
    fn every_protocol_is_read() {
        let protocols: [&[u8]; 6] = [
            b"(dp0\nV\xe9\\u20ac\np1\n(lp2\nI-3\naI70000\naI01\naF0.5\naL1180591620717411303424L\nasVn\np3\n(Va\\u000a\np4\ntp5\ns.",
            b"}q\x00(X\x05\x00\x00\x00\xc3\xa9\xe2\x82\xacq\x01]q\x02(J\xfd\xff\xff\xffJp\x11\x01\x00I01\nG?\xe0\x00\x00\x00\x00\x00\x00L1180591620717411303424L\neX\x01\x00\x00\x00nq\x03(X\x02\x00\x00\x00a\nq\x04tq\x05u.",
            b"\x80\x02}q\x00(X\x05\x00\x00\x00\xc3\xa9\xe2\x82\xacq\x01]q\x02(J\xfd\xff\xff\xffJp\x11\x01\x00\x88G?\xe0\x00\x00\x00\x00\x00\x00\x8a\t\x00\x00\x00\x00\x00\x00\x00\x00@eX\x01\x00\x00\x00nq\x03X\x02\x00\x00\x00a\nq\x04\x85q\x05u.",
            b"\x80\x03}q\x00(X\x05\x00\x00\x00\xc3\xa9\xe2\x82\xacq\x01]q\x02(J\xfd\xff\xff\xffJp\x11\x01\x00\x88G?\xe0\x00\x00\x00\x00\x00\x00\x8a\t\x00\x00\x00\x00\x00\x00\x00\x00@eX\x01\x00\x00\x00nq\x03X\x02\x00\x00\x00a\nq\x04\x85q\x05u.",
            b"\x80\x04\x95;\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x05\xc3\xa9\xe2\x82\xac\x94]\x94(J\xfd\xff\xff\xffJp\x11\x01\x00\x88G?\xe0\x00\x00\x00\x00\x00\x00\x8a\t\x00\x00\x00\x00\x00\x00\x00\x00@e\x8c\x01n\x94\x8c\x02a\n\x94\x85\x94u.",
            b"\x80\x05\x95;\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x05\xc3\xa9\xe2\x82\xac\x94]\x94(J\xfd\xff\xff\xffJp\x11\x01\x00\x88G?\xe0\x00\x00\x00\x00\x00\x00\x8a\t\x00\x00\x00\x00\x00\x00\x00\x00@e\x8c\x01n\x94\x8c\x02a\n\x94\x85\x94u.",
        ];
        for (protocol, bytes) in protocols.into_iter().enumerate() {
            let pickle = Pickle::read(bytes).unwrap_or_else(|error| panic!("protocol {protocol}: {error}"));
            let numbers = pickle.root().field("é€").expect("is a field");
            let numbers: Vec<_> = numbers.items().map(Value::number).collect();
            assert_eq!(numbers, [None, Some(70_000), None, None, None], "protocol {protocol}");
            let texts = pickle.root().field("n").expect("is a field");
            assert_eq!(texts.items().map(Value::text).collect::<Vec<_>>(), ["a\n"], "protocol {protocol}");
            for end in 0..bytes.len() {
                assert!(Pickle::read(&bytes[..end]).is_err(), "protocol {protocol}, {end}");
            }
        }
        let python2 = Pickle::read(b"(lp0\nS'it\\'s \\xc3\\xa9'\np1\naS\"a\\\\b\"\naU\x01xa.").expect("is read");
        assert_eq!(python2.root().items().map(Value::text).collect::<Vec<_>>(), ["it's é", "a\\b", "x"]);
        for bad in [&b"I1x\n."[..], b"I\n.", b"S'a\n.", b"Sa\n.", b"g5\n.", b"g-1\n.", b"p0\n.", b"V"] {
            assert!(Pickle::read(bad).is_err(), "{bad:?}");
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
