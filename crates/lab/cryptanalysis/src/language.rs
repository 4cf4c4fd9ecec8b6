//! The probability of a byte after the four before it, in English, HTML and HTTP.
//!
//! The shipped table counts what follows what, up to five bytes, in texts that are listed in
//! `model/train.sh`; seldom ones are left out. A byte's probability mixes what was counted behind the whole
//! context with what was counted behind ever shorter ones, the more so the more different bytes the context has
//! led to (Witten and Bell).

mod train;

pub use train::{shared_run, train};

/// Bytes of context.
pub(crate) const CONTEXT: usize = 4;

/// Log-probabilities (base 2) of the next byte.
pub(crate) type NextByte = [f32; 256];

/// A byte model of text.
pub struct Model {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Probabilities without context, and behind each single byte: what all longer contexts fall back on.
    short: Vec<[f32; 256]>,
}

/// A context that was met.
struct Node {
    /// Where its edges begin; they end where the next node's begin.
    first_edge: usize,
    edges: usize,
    /// Sum of the counts on the edges.
    total: f32,
}

#[derive(Clone, Copy)]
struct Edge {
    byte: u8,
    count: f32,
    /// The context with this byte added; `None` at full length.
    node: Option<u32>,
}

impl Model {
    /// The shipped model. The same in every run.
    #[must_use]
    pub fn shipped() -> Self {
        Self::parse(include_bytes!("../model/text.ngrams")).expect("the shipped table is well-formed")
    }

    /// Reads a table that [`train`] has written; `None` if it is cut off or has something behind its end.
    #[must_use]
    pub fn parse(mut table: &[u8]) -> Option<Self> {
        let mut model = Self { nodes: Vec::new(), edges: Vec::new(), short: Vec::new() };
        model.parse_node(&mut table, 0)?;
        if !table.is_empty() {
            return None;
        }
        let none = model.mixed(&[], 0, &[1.0 / 256.0; 256]);
        model.short = (0..=255_u8).map(|byte| model.mixed(&[byte], 1, &none)).collect();
        model.short.push(none);
        Some(model)
    }

    fn parse_node(&mut self, table: &mut &[u8], depth: usize) -> Option<u32> {
        let count = usize::from(*table.split_off_first()?);
        let id = self.nodes.len();
        let first_edge = self.edges.len();
        self.nodes.push(Node { first_edge, edges: count, total: 0.0 });
        self.edges.resize(first_edge + count, Edge { byte: 0, count: 0.0, node: None });
        for at in first_edge..first_edge + count {
            let byte = *table.split_off_first()?;
            let count = train::count_of(*table.split_off_first()?);
            let node = if depth < CONTEXT { Some(self.parse_node(table, depth + 1)?) } else { None };
            self.edges[at] = Edge { byte, count, node };
            self.nodes[id].total += count;
        }
        u32::try_from(id).ok()
    }

    fn edges_of(&self, node: &Node) -> &[Edge] {
        &self.edges[node.first_edge..node.first_edge + node.edges]
    }

    fn node(&self, context: &[u8]) -> Option<&Node> {
        context.iter().try_fold(&self.nodes[0], |node, byte| {
            let edges = self.edges_of(node);
            let at = edges.binary_search_by_key(byte, |edge| edge.byte).ok()?;
            self.nodes.get(edges[at].node? as usize)
        })
    }

    /// The distribution after the last bytes of `context`, of which at most [`CONTEXT`] count.
    pub(crate) fn next_byte(&self, context: &[u8]) -> NextByte {
        let context = &context[context.len().saturating_sub(CONTEXT)..];
        let short = context.last().map_or(256, |&byte| usize::from(byte));
        self.mixed(context, 2, &self.short[short]).map(|likely| log2(likely).max(SURPRISE))
    }

    /// `base` mixed with what was counted behind the last `shortest` bytes of `context`, and one byte more, and so
    /// on. Per context: what was counted, plus `base` as if counted once per kind of byte seen.
    fn mixed(&self, context: &[u8], shortest: usize, base: &[f32; 256]) -> [f32; 256] {
        let known: Vec<&Node> = (shortest..=context.len())
            .map_while(|length| self.node(&context[context.len() - length..]))
            .filter(|node| node.edges > 0)
            .collect();
        let left = |node: &&Node| node.edges as f32 / (node.total + node.edges as f32);
        let weight: f32 = known.iter().map(left).product();
        let mut likely = base.map(|likely| likely * weight);
        let mut weight = 1.0;
        for node in known.iter().rev() {
            let scale = weight / (node.total + node.edges as f32);
            for edge in self.edges_of(node) {
                likely[usize::from(edge.byte)] += edge.count * scale;
            }
            weight *= left(node);
        }
        likely
    }

    /// Bits per byte that the model needs for `text`: about 2 to 3 for what it knows, above 6 for noise.
    #[must_use]
    pub fn bits_per_byte(&self, text: &[u8]) -> f32 {
        let bits = |at: usize| -self.next_byte(&text[at.saturating_sub(CONTEXT)..at])[usize::from(text[at])];
        (0..text.len()).map(bits).sum::<f32>() / text.len().max(1) as f32
    }
}

/// Logarithm of a positive number to within 0.01: the exponent, and a parabola through the mantissa.
fn log2(number: f32) -> f32 {
    let bits = number.to_bits();
    let exponent = (bits >> 23) as f32 - 127.0;
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000);
    exponent + (mantissa - 1.0) * (1.344 - (mantissa - 1.0) * 0.344)
}

/// No byte counts as less likely than this: a few odd characters in a row must not outweigh the others.
const SURPRISE: f32 = -16.0;

#[cfg(test)]
mod tests {
    use super::{Model, train};

    #[test]
    fn the_shipped_model_knows_english_from_noise() {
        let model = Model::shipped();
        let english = b"The quick answer is that no town had thought of asking the people that lived there";
        let shouted: Vec<u8> = english.iter().map(|byte| byte ^ 0x15).collect();
        assert!(model.bits_per_byte(english) < 3.2, "{}", model.bits_per_byte(english));
        assert!(model.bits_per_byte(&shouted) > 7.0, "{}", model.bits_per_byte(&shouted));
    }

    #[test]
    fn probabilities_add_up_to_one() {
        let model = Model::parse(&train(&[b"abracadabra, said the abracadabrist, abracadabra".repeat(9)]))
            .expect("table");
        for context in [&b""[..], b"a", b"abra", b"zzzz", b"the cadab"] {
            let sum: f32 = model.next_byte(context).iter().map(|bits| bits.exp2()).sum();
            assert!((sum - 1.0).abs() < 0.02, "{sum}");
        }
        assert!(model.next_byte(b"abra")[usize::from(b'c')] > -1.0);
    }

    #[test]
    fn a_broken_table_is_refused() {
        let table = train(&[b"some text some text some text".repeat(3)]);
        assert!(Model::parse(&table).is_some());
        assert!(Model::parse(&table[..table.len() - 1]).is_none());
        assert!(Model::parse(&[&table[..], &[0]].concat()).is_none());
        assert!(Model::parse(&[]).is_none());
    }
}
