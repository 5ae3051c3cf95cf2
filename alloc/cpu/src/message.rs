//! Messages without allocation, and the end of a process whose memory is already corrupt.

/// A line under construction on the stack; what doesn't fit is cut.
pub struct Message {
    bytes: [u8; 256],
    len: usize,
}

impl Message {
    /// Starts a line.
    pub fn new(text: &str) -> Self {
        Message { bytes: [0; 256], len: 0 }.text("poolscope: ").text(text)
    }

    /// Adds text.
    pub fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Adds bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        self
    }

    /// Adds a decimal number.
    pub fn number(self, value: u64) -> Self {
        let (digits, first) = decimal(value);
        self.bytes(&digits[first..])
    }

    /// Adds an address.
    pub fn address(self, value: usize) -> Self {
        let mut digits = [0u8; 16];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (60 - 4 * i)) & 15];
        }
        let start = digits.iter().position(|&d| d != b'0').unwrap_or(15);
        self.text("0x").bytes(&digits[start..])
    }

    /// Writes the line to standard error, with errno kept.
    pub fn print(mut self) {
        let at = self.len.min(self.bytes.len() - 1);
        self.bytes[at] = b'\n';
        crate::os::keep_errno(|| {
            // SAFETY: the buffer holds at least `at + 1` bytes. A failed write is nothing to act on here.
            unsafe { libc::write(2, self.bytes.as_ptr().cast(), at + 1) };
        });
    }

    /// Writes the line and aborts: memory is corrupt, going on would spread it.
    pub fn abort(self) -> ! {
        self.print();
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
}

/// A number's decimal digits: they are the buffer's from the second value on.
pub fn decimal(mut value: u64) -> ([u8; 20], usize) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return (digits, first);
        }
    }
}
