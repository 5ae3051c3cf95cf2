//! Functions that differ in nothing but what stands in angle brackets, and one in a module. Each holds as much as the
//! tests expect of it.

use std::io::Write;

trait Maker {
    fn make(&self) -> Vec<u8>;
}

struct A;
struct B;

impl Maker for A {
    #[inline(never)]
    fn make(&self) -> Vec<u8> {
        vec![1; 1000]
    }
}

impl Maker for B {
    #[inline(never)]
    fn make(&self) -> Vec<u8> {
        vec![2; 3000]
    }
}

mod server {
    #[inline(never)]
    pub fn handle_request(text: &str) -> String {
        text.to_owned()
    }
}

fn main() {
    let text = "x".repeat(700);
    let made: Vec<_> = (0..100).map(|_| (A.make(), B.make(), server::handle_request(&text))).collect();
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line.starts_with("leak") {
        std::mem::forget(made);
    }
}
