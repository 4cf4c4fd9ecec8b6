//! Writes the model's table from texts: `train OUT FILE...`. See `model/train.sh`.

use std::{env, fs, io};

fn main() -> io::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let out = arguments.next().ok_or_else(|| io::Error::other("usage: train OUT FILE..."))?;
    let texts = arguments.map(fs::read).collect::<io::Result<Vec<_>>>()?;
    let table = attack::train(&texts);
    println!("{} bytes of text, {} bytes of table", texts.iter().map(Vec::len).sum::<usize>(), table.len());
    fs::write(out, table)
}
